// SPDX-License-Identifier: Apache-2.0
// Types of the numbers that collectives send, and adding them up.
#pragma once

#include <cstddef>

namespace simdevice {

enum class NumberType {
  int8,
  uint8,
  int16,
  uint16,
  int32,
  uint32,
  int64,
  uint64,
  float16,
  bfloat16,
  float32,
  float64,
};

enum class Reduction { sum, product, minimum, maximum, average };

std::size_t size_of(NumberType type) noexcept;
const char* name_of(NumberType type) noexcept;
const char* name_of(Reduction reduction) noexcept;

// into[i] becomes `into[i]` reduced with `other[i]`; an average is a sum until `divide`. Numbers of 16 bits are reduced
// in float32, and rounded.
void reduce(void* into, const void* other, std::size_t count, NumberType type, Reduction reduction);
void divide(void* numbers, std::size_t count, NumberType type, int by);

}  // namespace simdevice
