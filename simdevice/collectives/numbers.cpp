// SPDX-License-Identifier: Apache-2.0
#include "simdevice/collectives/numbers.h"

#include <torch/headeronly/util/BFloat16.h>
#include <torch/headeronly/util/Half.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

namespace simdevice {
namespace {

// What `action` does for the type as C++ has it, which it is given as a value.
template <typename Action>
decltype(auto) with_type(NumberType type, Action&& action) {
  switch (type) {
    case NumberType::int8: return action(std::int8_t{});
    case NumberType::uint8: return action(std::uint8_t{});
    case NumberType::int16: return action(std::int16_t{});
    case NumberType::uint16: return action(std::uint16_t{});
    case NumberType::int32: return action(std::int32_t{});
    case NumberType::uint32: return action(std::uint32_t{});
    case NumberType::int64: return action(std::int64_t{});
    case NumberType::uint64: return action(std::uint64_t{});
    case NumberType::float16: return action(c10::Half{});
    case NumberType::bfloat16: return action(c10::BFloat16{});
    case NumberType::float32: return action(float{});
    default: return action(double{});
  }
}

// What a number is reduced in: float32 for those that are no types of the language.
template <typename T>
using Computed = std::conditional_t<std::is_arithmetic_v<T>, T, float>;

template <typename T>
T reduced(T a, T b, Reduction reduction) {
  switch (reduction) {
    case Reduction::product: return static_cast<T>(a * b);
    case Reduction::minimum: return std::min(a, b);
    case Reduction::maximum: return std::max(a, b);
    default: return static_cast<T>(a + b);
  }
}

}  // namespace

std::size_t size_of(NumberType type) noexcept {
  return with_type(type, [](auto number) { return sizeof(number); });
}

const char* name_of(NumberType type) noexcept {
  constexpr const char* names[] = {"int8",  "uint8",  "int16",   "uint16",   "int32",   "uint32",
                                   "int64", "uint64", "float16", "bfloat16", "float32", "float64"};
  return names[static_cast<std::size_t>(type)];
}

const char* name_of(Reduction reduction) noexcept {
  constexpr const char* names[] = {"sum", "product", "minimum", "maximum", "average"};
  return names[static_cast<std::size_t>(reduction)];
}

void reduce(void* into, const void* other, std::size_t count, NumberType type, Reduction reduction) {
  with_type(type, [&](auto number) {
    using T = decltype(number);
    auto* a = static_cast<T*>(into);
    const auto* b = static_cast<const T*>(other);
    for (std::size_t i = 0; i < count; ++i) {
      a[i] = static_cast<T>(reduced<Computed<T>>(a[i], b[i], reduction));
    }
  });
}

void divide(void* numbers, std::size_t count, NumberType type, int by) {
  with_type(type, [&](auto number) {
    using T = decltype(number);
    auto* all = static_cast<T*>(numbers);
    for (std::size_t i = 0; i < count; ++i) {
      all[i] = static_cast<T>(static_cast<Computed<T>>(all[i]) / static_cast<Computed<T>>(by));
    }
  });
}

}  // namespace simdevice
