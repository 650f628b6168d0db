// Row products and attention for any processor, by the vectors that the compiler has everywhere.
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <bit>
#include <cmath>

#include "attention.h"
#include "block_products.h"
#include "elements.h"
#include "grouped_products.h"
#include "int_products.h"
#include "row_forms.h"
#include "row_norms.h"
#include "row_ops.h"
#include "row_products.h"

#define AIRGRAPH_SIMD inline __attribute__((always_inline))
#define AIRGRAPH_ENTRY

namespace airgraph::own {
namespace {
namespace scalar {

struct Vec {
  static constexpr int64_t kWidth = 4;
  static constexpr int kSums = 8;
  static constexpr int64_t kAhead = 0;
  using F = float __attribute__((vector_size(16)));

  static float as_float(float value) { return value; }
  static float as_float(Bf16 value) { return std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16); }
  // Not inlined: in loops that are unrolled these conversions were most of the code, and of the time to compile it.
  [[gnu::noinline]] static float as_float(F16 value) { return c10::Half(value.bits, c10::Half::from_bits()); }
  [[gnu::noinline]] static uint16_t as_bf16(float value) { return c10::BFloat16(value).x; }
  [[gnu::noinline]] static uint16_t as_f16(float value) { return c10::Half(value).x; }
  static float as_float(int8_t value) { return value; }

  static F zero() { return F{}; }
  static F add(F a, F b) { return a + b; }
  static F fma(F a, F b, F c) { return a * b + c; }
  template <class T>
  static F load(const T* from) {
    return F{as_float(from[0]), as_float(from[1]), as_float(from[2]), as_float(from[3])};
  }
  template <class T>
  static F load_part(const T* from, int64_t count) {
    F found{};
    for (int64_t i = 0; i < count; ++i) {
      found[i] = as_float(from[i]);
    }
    return found;
  }
  static F set(float value) { return F{value, value, value, value}; }
  static F mul(F a, F b) { return a * b; }
  static F div(F a, F b) { return a / b; }
  static bool any_above(F a, F b) { return !(a[0] <= b[0]) || !(a[1] <= b[1]) || !(a[2] <= b[2]) || !(a[3] <= b[3]); }
  static F sqrt(F a) { return F{std::sqrt(a[0]), std::sqrt(a[1]), std::sqrt(a[2]), std::sqrt(a[3])}; }
  static F sub(F a, F b) { return a - b; }
  static F number_or_zero(F a) { return a == a ? a : F{}; }
  static F max(F a, F b) { return a > b ? a : b; }
  static void store(float* to, F a) {
    for (int i = 0; i < kWidth; ++i) {
      to[i] = a[i];
    }
  }
  static void store(Bf16* to, F a) {
    for (int i = 0; i < kWidth; ++i) {
      to[i].bits = as_bf16(a[i]);
    }
  }
  static void store(F16* to, F a) {
    for (int i = 0; i < kWidth; ++i) {
      to[i].bits = as_f16(a[i]);
    }
  }
  static F exp(F x) { return F{std::exp(x[0]), std::exp(x[1]), std::exp(x[2]), std::exp(x[3])}; }
  static void prefetch(const void*) {}
  static void sum4(const F* sums, float* to) {
    for (int i = 0; i < 4; ++i) {
      to[i] = (sums[i][0] + sums[i][1]) + (sums[i][2] + sums[i][3]);
    }
  }
};

#include "row_products_body.h"

#include "attention_body.h"

#include "row_forms_body.h"

#include "row_ops_body.h"

#include "row_norms_body.h"

constexpr int64_t kTile = 4;

inline void transpose_tile(const float* from, int64_t ld, float* to, int64_t to_ld) {
  for (int64_t i = 0; i < kTile; ++i) {
    for (int64_t j = 0; j < kTile; ++j) {
      to[i * to_ld + j] = from[j * ld + i];
    }
  }
}

#include "block_products_body.h"

#include "grouped_products_body.h"

void run_ints(const IntProducts& p, int64_t begin, int64_t end) {
  for (int64_t n = begin; n < end; ++n) {
    const int8_t* right = p.right + n * p.right_ld;
    for (int64_t m = 0; m < p.rows; ++m) {
      int32_t sum = 0;
      for (int64_t k = 0; k < p.k; ++k) {
        sum += p.left[m * p.left_ld + k] * right[k];
      }
      p.out[m * p.out_ld + (n - begin)] = sum;
    }
  }
}

}  // namespace scalar
}  // namespace

RowProductsFn scalar_row_products(Element element) { return scalar::entry(element); }

RowOpFn scalar_row_op(RowOp op, Second second, Element in, Element out) {
  return scalar::row_op_entry(op, second, in, out);
}

RowOpFn scalar_row_argmax(Element in) { return scalar::argmax_entry(in); }

const RowForms& scalar_row_forms(Element element) { return scalar::forms_entry(element); }

const RowNorms& scalar_row_norms(Element element) { return scalar::norms_entry(element); }

const BlockForm& scalar_block_form() { return scalar::block_entry(); }

GroupedFn scalar_grouped_products() { return &scalar::run_groups; }

IntProductsFn scalar_int_products() { return &scalar::run_ints; }

const AttentionFns& scalar_attention_fns() {
  static const AttentionFns fns = scalar::attention_entries();
  return fns;
}

}  // namespace airgraph::own

#undef AIRGRAPH_SIMD
#undef AIRGRAPH_ENTRY
