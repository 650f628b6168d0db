// Elements of a matrix as they are stored, apart from ATen's types, whose functions no other instruction set may
// compile.
#pragma once

#include <cstdint>

namespace airgraph::own {

struct Bf16 {
  uint16_t bits;
};

struct F16 {
  uint16_t bits;
};

}  // namespace airgraph::own
