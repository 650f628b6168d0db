// Whether a result that is written while operands are read may lie where they lie.
#pragma once

#include <ATen/core/Tensor.h>

namespace airgraph::own {

// From a tensor's first element to behind its last.
inline int64_t extent_nbytes(const at::Tensor& tensor) {
  int64_t last = 0;
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) {
    last += (tensor.size(dim) - 1) * tensor.stride(dim);
  }
  return (last + 1) * static_cast<int64_t>(tensor.element_size());
}

// Where a tensor lies in a replay; nowhere where it is undefined.
struct Extent {
  const char* begin = nullptr;
  const char* end = nullptr;

  bool meets(const Extent& other) const { return begin < other.end && other.begin < end; }
};

// Whether an operand and the result have memory in common that is not the same element's of both.
inline bool overlaps_otherwise(const at::Tensor& out, const at::Tensor& operand) {
  if (!operand.defined() || !operand.is_alias_of(out)) {
    return false;
  }
  const auto begin_of = [](const at::Tensor& tensor) {
    return tensor.storage_offset() * static_cast<int64_t>(tensor.element_size());
  };
  const auto end_of = [&](const at::Tensor& tensor) { return begin_of(tensor) + extent_nbytes(tensor); };
  if (end_of(operand) <= begin_of(out) || end_of(out) <= begin_of(operand)) {
    return false;
  }
  return begin_of(operand) != begin_of(out) || operand.scalar_type() != out.scalar_type() ||
         operand.sizes() != out.sizes() || operand.strides() != out.strides();
}

}  // namespace airgraph::own
