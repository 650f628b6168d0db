// Products of one row with a matrix of int8, by whole numbers: the row is scaled to the largest that a form has. All
// have 24 bits and more of the row's largest number, as many as a float has of each.
#pragma once

#include <cstddef>
#include <cstdint>

#include "row_products.h"

namespace airgraph::own {

struct WholeRow {
  const char* memory;  // as the form that made it lays it out
  float scale;         // of a whole number
};

struct WholeForm {
  // What a row of k numbers takes; aligned to 64.
  size_t (*nbytes)(int64_t k);
  // Of k floats. False where one is not finite, or none is normal, or the largest is so far above the others that the
  // whole numbers say less of these than results, which are rounded by `rounding` times their size, would show.
  bool (*make)(const float* from, int64_t k, float rounding, char* memory, WholeRow& row);
  // As RowProductsFn, without `left`.
  void (*run)(const RowProducts& products, const WholeRow& row, int64_t begin, int64_t end);
};

// Sums are of 32 bits: longer rows are not served.
constexpr int64_t kMostWhole = int64_t{1} << 18;

// The best that ATen's instruction set and this processor have; null where nothing is gained.
const WholeForm* whole_form();

const WholeForm* avx2_whole_form();
const WholeForm* avx512_whole_form();
const WholeForm* avx512_dots_whole_form();

}  // namespace airgraph::own
