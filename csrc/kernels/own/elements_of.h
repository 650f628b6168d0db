// ATen's types of numbers as elements that our kernels read.
#pragma once

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

}  // namespace airgraph::own
