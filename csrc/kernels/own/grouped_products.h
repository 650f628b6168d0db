// Products of few rows with a matrix of int8 that has a scale, and perhaps a zero, for each group of a row's numbers.
#pragma once

#include <cstdint>

namespace airgraph::own {

// out[m] = sum over groups of scale[g] * sum over k in the group of left[m, k] * (right[k] - zero[g]).
struct GroupedProducts {
  const float* left;  // a row's elements follow one another
  int64_t left_ld;
  int64_t rows;  // of `left`, at least 1
  const int8_t* right;
  int64_t k, group;     // numbers of a row, and of a group
  const float* scales;  // of each group
  const int8_t* zeros;  // of each group, or null
  float* out;
  int64_t out_ld;
};

using GroupedFn = void (*)(const GroupedProducts& products);

// One for each instruction set; the best one that ATen would use, which ATEN_CPU_CAPABILITY limits.
GroupedFn grouped_products();

GroupedFn scalar_grouped_products();
GroupedFn avx2_grouped_products();
GroupedFn avx512_grouped_products();

}  // namespace airgraph::own
