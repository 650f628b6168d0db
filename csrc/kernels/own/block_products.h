// Products of many rows: the matrix is read in panels of as many columns as registers hold sums of, each once for a
// block of rows, and the panels lie in the cache while the rows pass by (Goto's way). What a panel's numbers are read
// from need not lie so: they are brought into order on the way, or were beforehand.
#pragma once

#include <cstdint>
#include <utility>

namespace airgraph::own {

// out[m, n] = sum over k of left[m, k] * right[k, n] + bias[n]. Strides and leading dimensions are in elements.
struct BlockProducts {
  const float* left;  // a row's elements follow one another
  int64_t left_ld;
  int64_t n, k;
  const float* right;
  int64_t right_k, right_n;  // its strides
  const float* panels;       // what `pack` made of it, or null
  const float* bias;         // or null
  float* out;                // a row's elements follow one another
  int64_t out_ld;
};

// Of one call of `run`.
constexpr int64_t kMostBlockRows = 192;

struct BlockForm {
  int64_t width;  // columns of a panel

  // The rows [row, row_end) of the columns of the panels [panel, panel_end).
  void (*run)(const BlockProducts& products, int64_t row, int64_t row_end, int64_t panel, int64_t panel_end);

  // Writes these panels, each k times `width` floats, zeros in columns beyond n. `to` is where the first panel of all
  // lies, and aligned to 64 bytes.
  void (*pack)(const BlockProducts& products, int64_t panel, int64_t panel_end, float* to);
};

// One for each instruction set; the best one that ATen would use, which ATEN_CPU_CAPABILITY limits.
const BlockForm& block_form();

const BlockForm& scalar_block_form();
const BlockForm& avx2_block_form();
const BlockForm& avx512_block_form();

}  // namespace airgraph::own
