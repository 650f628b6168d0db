// Whether a result that is written while operands are read may lie where they lie.
#pragma once

#include <ATen/core/Tensor.h>

namespace airgraph::own {

// Whether an operand and the result have memory in common that is not the same element's of both.
inline bool overlaps_otherwise(const at::Tensor& out, const at::Tensor& operand) {
  if (!operand.defined() || !operand.is_alias_of(out)) {
    return false;
  }
  const auto end_of = [](const at::Tensor& tensor) {
    int64_t last = tensor.storage_offset();
    for (int64_t dim = 0; dim < tensor.dim(); ++dim) {
      last += (tensor.size(dim) - 1) * tensor.stride(dim);
    }
    return (last + 1) * static_cast<int64_t>(tensor.element_size());
  };
  const auto begin_of = [](const at::Tensor& tensor) {
    return tensor.storage_offset() * static_cast<int64_t>(tensor.element_size());
  };
  if (end_of(operand) <= begin_of(out) || end_of(out) <= begin_of(operand)) {
    return false;
  }
  return begin_of(operand) != begin_of(out) || operand.scalar_type() != out.scalar_type() ||
         operand.sizes() != out.sizes() || operand.strides() != out.strides();
}

}  // namespace airgraph::own
