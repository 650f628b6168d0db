// What looks at a whole row before it writes one: LayerNorm and softmax of few numbers.
#pragma once

#include <cstdint>

#include "row_products.h"

namespace airgraph::own {

// Dense rows, one after the other, all of one type of element.
struct NormCall {
  const char* in;
  char* out;
  int64_t rows, count;
  // Of LayerNorm alone: one element of a row, each; null for none.
  const char *weight, *bias;
  double eps;
  char *mean, *rstd;  // one element a row
  // Of softmax alone: `count` floats.
  float* scratch;
};

struct RowNorms {
  void (*layer_norm)(const NormCall& call);
  void (*softmax)(const NormCall& call);
};

// For the instruction set that `row_products` takes; of floats only.
const RowNorms& row_norms(Element element);

const RowNorms& scalar_row_norms(Element element);
const RowNorms& avx2_row_norms(Element element);
const RowNorms& avx512_row_norms(Element element);

}  // namespace airgraph::own
