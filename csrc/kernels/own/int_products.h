// Products of few rows of int8 with a matrix of int8, in whole numbers of 32 bits: exact, as eager's are.
#pragma once

#include <cstdint>

namespace airgraph::own {

// Numbers in a row of `left` are followed by zeros up to a multiple of this.
constexpr int64_t kIntPadding = 32;

// out[m, n] = sum over k of left[m, k] * right[n, k]. A row's elements follow one another.
struct IntProducts {
  const int16_t* left;
  int64_t left_ld;
  int64_t rows;  // of `left`, at least 1
  const int8_t* right;
  int64_t right_ld;
  int64_t k;
  int32_t* out;
  int64_t out_ld;
};

// Of the rows [begin, end) of `right`; the result of the first lies at `out`.
using IntProductsFn = void (*)(const IntProducts& products, int64_t begin, int64_t end);

// One for each instruction set; the best one that ATen would use, which ATEN_CPU_CAPABILITY limits.
IntProductsFn int_products();

IntProductsFn scalar_int_products();
IntProductsFn avx2_int_products();
IntProductsFn avx512_int_products();

}  // namespace airgraph::own
