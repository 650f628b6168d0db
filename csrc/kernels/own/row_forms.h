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
};

// For the instruction set that `row_products` takes; of floats only.
const RowForms& row_forms(Element element);

const RowForms& scalar_row_forms(Element element);
const RowForms& avx2_row_forms(Element element);
const RowForms& avx512_row_forms(Element element);

}  // namespace airgraph::own
