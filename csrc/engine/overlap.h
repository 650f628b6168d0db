// Whether two tensors have an element in common.
#pragma once

#include <ATen/core/Tensor.h>

namespace airgraph {

// Exact for tensors whose strides nest, which nearly all do; true where it would take too long to say.
// Method: a bounded Diophantine equation, solved by a search over the strides from the largest down (as NumPy's
// may_share_memory does).
bool overlap(const at::Tensor& a, const at::Tensor& b);

// Bytes from a tensor's first element to the end of its last.
struct Span {
  uintptr_t begin = 0, end = 0;

  static Span of(const at::Tensor& tensor);
  bool meets(const Span& other) const { return begin < other.end && other.begin < end; }
};

}  // namespace airgraph
