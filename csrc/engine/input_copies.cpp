#include "input_copies.h"

#include <ATen/ops/_foreach_copy.h>

#include "../internals/tensors.h"
#include "guard.h"

namespace airgraph {
namespace {

// By value: an asynchronous copy would read the host's memory after the call.
void fill(const at::Tensor& target, const at::Tensor& number) {
  const ReplayGuard guard;
  at::Tensor(target).fill_(number.item());
}

}  // namespace

void InputCopies::add(const Inputs& inputs, const CopiedInput& input, const at::Tensor& arg) {
  if (arg.device() != input.buffer.device()) {
    fill(input.buffer, arg);
    return;
  }
  const bool is_buffer = arg.const_data_ptr() == input.buffer.const_data_ptr();
  if (!input.is_block(arg)) {
    elements_.targets.push_back(input.buffer);
    // The buffer itself may be seen in another way.
    elements_.sources.push_back(is_buffer ? arg.clone() : inputs.source(input, arg));
  } else if (!is_buffer) {
    blocks_.targets.push_back(bytes_of(input.buffer, input.block_begin, input.block_nbytes));
    blocks_.sources.push_back(bytes_of(inputs.source(input, arg), input.block_begin, input.block_nbytes));
  }
}

void InputCopies::run() {
  if (blocks_.targets.empty() && elements_.targets.empty()) {
    return;
  }
  const ReplayGuard guard;
  if (blocks_.targets.size() == 1) {
    blocks_.targets[0].copy_(blocks_.sources[0], /*non_blocking=*/true);
  } else if (!blocks_.targets.empty()) {
    at::_foreach_copy_(blocks_.targets, blocks_.sources, /*non_blocking=*/true);
  }
  for (size_t i = 0; i < elements_.targets.size(); ++i) {
    elements_.targets[i].copy_(elements_.sources[i], /*non_blocking=*/true);
  }
}

}  // namespace airgraph
