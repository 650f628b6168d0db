// What form the result of an operator has that is computed element by element.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace airgraph {

// Sizes and strides as PyTorch's own iterator gives them to a new result. The operands are of the device meta.
// Throws where they do not broadcast.
std::pair<std::vector<int64_t>, std::vector<int64_t>> pointwise_form(const std::vector<at::Tensor>& operands);

}  // namespace airgraph
