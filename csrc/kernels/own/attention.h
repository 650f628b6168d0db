// What attention of few queries needs beside products of rows: the softmax of its scores, and sums of rows by weights.
#pragma once

#include <cstdint>

#include "row_products.h"

namespace airgraph::own {

// out[m, n] = sum over t of weights[m, t] * right[t, n]; a row's elements follow one another.
struct WeightedRows {
  const float* weights;
  int64_t weights_ld;
  int64_t rows;  // of `weights`
  const void* right;
  int64_t right_ld;
  int64_t count;  // of rows of `right`
  int64_t n;
  float* out;
  int64_t out_ld;
};

using WeightedRowsFn = void (*)(const WeightedRows& rows);

// scores = exp(scores * scale + mask - their largest); returns their sum. mask: null for none. Where nothing is
// allowed, all are zero, and the sum too. Up to the next multiple of kPadding, more numbers lie in `scores`, which
// become zero.
using SoftmaxFn = float (*)(float* scores, const float* mask, int64_t count, float scale);

constexpr int64_t kPadding = 16;

struct AttentionFns {
  WeightedRowsFn weighted[4];  // by Element
  SoftmaxFn softmax;
};

// For the instruction set that `row_products` takes.
const AttentionFns& attention_fns();

const AttentionFns& scalar_attention_fns();
const AttentionFns& avx2_attention_fns();
const AttentionFns& avx512_attention_fns();

}  // namespace airgraph::own
