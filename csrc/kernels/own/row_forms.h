// What stands around the sums of a row: its elements as floats, and sums as elements.
#pragma once

#include <cstdint>

#include "row_products.h"

namespace airgraph::own {

struct RowForms {
  // So many elements, one after the other, as floats.
  void (*read)(const void* from, int64_t count, float* to);
  // sums * scale + bias, each rounded once. scale, bias: null for none.
  void (*write)(const float* sums, const float* scale, const float* bias, int64_t count, void* to);
  // A row as whole numbers of 16 bits, and what these leave in units of 1 / kRestsOfOne: (shorts + rests / kRestsOfOne)
  // * scale are its numbers to 32 bits of the largest, and to float32. Zeros follow both up to a multiple of
  // kShortPadding. Returns the scale, or 0 where a number is not finite, or none is normal. Null where nothing is
  // gained.
  float (*shorten)(const float* from, int64_t count, int16_t* shorts, int16_t* rests);
};

constexpr int64_t kShortPadding = 32;
constexpr float kRestsOfOne = 65534;

// For the instruction set that `row_products` takes; of floats only.
const RowForms& row_forms(Element element);

const RowForms& scalar_row_forms(Element element);
const RowForms& avx2_row_forms(Element element);
const RowForms& avx512_row_forms(Element element);

}  // namespace airgraph::own
