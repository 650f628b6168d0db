// Operators on few numbers: what lies between the products of a decode step. There the weights drive code and data out
// of the caches, and a kernel that has little of both is done sooner than one that is fast on long tensors.
#pragma once

#include <cstdint>

#include "row_products.h"

namespace airgraph::own {

enum class RowOp { add, sub, mul, div, neg, silu, rsqrt, square, relu, copy, mean };

// What the second operand is: nothing, rows as long as the first's, one element for each row, or a number.
enum class Second { none, row, one, number };

// Rows whose elements follow one another. The mean of a row is one element.
struct RowCall {
  char* out;
  const char* a;
  const char* b;
  int64_t rows, count;
  int64_t out_stride, a_stride, b_stride;  // bytes from one row to the next
  float number;
};

using RowOpFn = void (*)(const RowCall& call);

// Null where there is none. Only `copy` has other elements in its result; all compute in float32 and round once.
RowOpFn row_op(RowOp op, Second second, Element in, Element out);

// The index of each row's largest element, the first one or the first that is no number, as int64.
RowOpFn row_argmax(Element in);

RowOpFn scalar_row_argmax(Element in);
RowOpFn avx2_row_argmax(Element in);
RowOpFn avx512_row_argmax(Element in);

RowOpFn scalar_row_op(RowOp op, Second second, Element in, Element out);
RowOpFn avx2_row_op(RowOp op, Second second, Element in, Element out);
RowOpFn avx512_row_op(RowOp op, Second second, Element in, Element out);

}  // namespace airgraph::own
