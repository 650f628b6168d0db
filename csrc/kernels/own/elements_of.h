// ATen's types of numbers as elements that our kernels read.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <optional>

#include "row_products.h"

namespace airgraph::own {

inline std::optional<Element> element_of(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return Element::f32;
    case at::kBFloat16:
      return Element::bf16;
    case at::kHalf:
      return Element::f16;
    case at::kChar:
      return Element::i8;
    default:
      return std::nullopt;
  }
}

// Whether it is a tensor of floats whose memory holds its numbers as they are.
inline bool holds_floats(const at::Tensor& tensor) {
  return tensor.defined() && !tensor.is_neg() && element_of(tensor.scalar_type()) && tensor.scalar_type() != at::kChar;
}

// Of a tensor that does.
inline Element element_in(const at::Tensor& tensor) { return element_of(tensor.scalar_type()).value_or(Element::f32); }

}  // namespace airgraph::own
