// Forward-mode derivatives, as autograd keeps them.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/forward_grad.h>

namespace airgraph {

// Whether any are being computed, by anyone. There is only the level 0.
inline bool has_forward_level() { return torch::autograd::ForwardADLevel::try_get_by_idx(0) != nullptr; }

inline bool has_tangent(const at::Tensor& tensor) { return tensor._fw_grad(0).defined(); }

}  // namespace airgraph
