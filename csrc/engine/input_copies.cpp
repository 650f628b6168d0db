#include "input_copies.h"

#include <ATen/ops/_foreach_copy.h>

#include <vector>

#include "../internals/formats.h"
#include "../internals/plain_copy.h"
#include "../internals/streams.h"
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
  if (!input.is_block(arg) || !lies_in_rows(arg)) {
    // The buffer itself may be seen in another way.
    elements_.push_back({&input, is_buffer ? arg.clone() : inputs.source(input, arg)});
  } else if (!is_buffer) {
    blocks_.push_back({&input, inputs.source(input, arg)});
  }
}

void InputCopies::run() const {
  if (!blocks_.empty()) {
    copy_blocks();
  }
  if (!elements_.empty()) {
    const ReplayGuard guard;
    for (const auto& [into, source] : elements_) {
      into->buffer.copy_(source, /*non_blocking=*/true);
    }
  }
}

void InputCopies::copy_blocks() const {
  const auto device = blocks_[0].into->buffer.device();
  if (const auto* plain = PlainCopy::of(device); plain != nullptr && blocks_.size() <= plain->few()) {
    const auto stream = current_stream(device);
    for (const auto& [into, source] : blocks_) {
      plain->run(stream, static_cast<char*>(into->buffer.mutable_data_ptr()) - into->block_begin,
                 static_cast<const char*>(source.const_data_ptr()) - into->block_begin, into->block_nbytes);
    }
    return;
  }
  std::vector<at::Tensor> targets;
  std::vector<at::Tensor> sources;
  for (const auto& [into, source] : blocks_) {
    targets.push_back(bytes_of(into->buffer, into->block_begin, into->block_nbytes));
    sources.push_back(bytes_of(source, into->block_begin, into->block_nbytes));
  }
  const ReplayGuard guard;
  at::_foreach_copy_(targets, sources, /*non_blocking=*/true);
}

}  // namespace airgraph
