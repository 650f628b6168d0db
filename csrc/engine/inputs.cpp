#include "inputs.h"

namespace airgraph {

std::optional<size_t> Inputs::moved(c10::ArrayRef<at::Tensor> args) const {
  for (const auto& input : fixed_) {
    if (args[input.index].const_data_ptr() != input.address) {
      return input.index;
    }
  }
  return std::nullopt;
}

std::optional<size_t> Inputs::mismatched(c10::ArrayRef<at::Tensor> args) const {
  for (const auto& input : copied_) {
    const auto& arg = args[input.index];
    if (arg.sizes() != input.buffer.sizes() || arg.scalar_type() != input.buffer.scalar_type() ||
        arg.device() != input.buffer.device()) {
      return input.index;
    }
  }
  return std::nullopt;
}

}  // namespace airgraph
