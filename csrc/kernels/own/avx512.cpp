// Row products and attention by AVX-512.
#include "attention.h"
#include "block_products.h"
#include "elements.h"
#include "grouped_products.h"
#include "int_products.h"
#include "row_forms.h"
#include "row_norms.h"
#include "row_ops.h"
#include "row_products.h"
#include "whole_rows.h"

#if defined(__x86_64__)
// A false alarm of GCC 12 about its own header.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>

#define AIRGRAPH_ENTRY __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")))
#define AIRGRAPH_SIMD inline __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma"), always_inline))

namespace airgraph::own {
namespace {
namespace avx512 {

#include "avx512_vec.h"

// Whole numbers of 16 bits.
struct Whole {
  static constexpr int64_t kWidth = 32;  // of a vector
  using I = __m512i;

  AIRGRAPH_SIMD static void store(int16_t* to, Vec::F a) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtsepi32_epi16(_mm512_cvtps_epi32(a)));
  }
  AIRGRAPH_SIMD static I zero() { return _mm512_setzero_si512(); }
  AIRGRAPH_SIMD static I widen(const int8_t* bytes) {
    return _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes)));
  }
  AIRGRAPH_SIMD static I add_products(I sum, I wide, const int16_t* shorts) {
    return _mm512_add_epi32(sum, _mm512_madd_epi16(wide, _mm512_loadu_si512(shorts)));
  }
  AIRGRAPH_SIMD static Vec::F as_floats(I sum) { return _mm512_cvtepi32_ps(sum); }
  AIRGRAPH_SIMD static int32_t total(I sum) { return _mm512_reduce_add_epi32(sum); }
};

#include "row_products_body.h"

#include "attention_body.h"

#include "row_forms_body.h"

#include "row_ops_body.h"

#include "row_norms_body.h"

#include "shorts_body.h"

#include "int_products_body.h"

#include "whole_rows_body.h"

#include "transpose8.h"

#include "block_products_body.h"

#include "grouped_products_body.h"

}  // namespace avx512
}  // namespace

RowProductsFn avx512_row_products(Element element) { return avx512::entry(element); }

RowOpFn avx512_row_op(RowOp op, Second second, Element in, Element out) {
  return avx512::row_op_entry(op, second, in, out);
}

RowOpFn avx512_row_argmax(Element in) { return avx512::argmax_entry(in); }

const RowForms& avx512_row_forms(Element element) { return avx512::forms_entry(element); }

const RowNorms& avx512_row_norms(Element element) { return avx512::norms_entry(element); }

const WholeForm* avx512_whole_form() { return &avx512::whole_form_entry(); }

const BlockForm& avx512_block_form() { return avx512::block_entry(); }

GroupedFn avx512_grouped_products() { return &avx512::run_groups; }

IntProductsFn avx512_int_products() { return &avx512::run_ints; }

const AttentionFns& avx512_attention_fns() {
  static const AttentionFns fns = avx512::attention_entries();
  return fns;
}

}  // namespace airgraph::own

#undef AIRGRAPH_SIMD
#undef AIRGRAPH_ENTRY
#else
namespace airgraph::own {
RowProductsFn avx512_row_products(Element) { return nullptr; }
RowOpFn avx512_row_op(RowOp op, Second second, Element in, Element out) { return scalar_row_op(op, second, in, out); }
RowOpFn avx512_row_argmax(Element in) { return scalar_row_argmax(in); }
const RowForms& avx512_row_forms(Element element) { return scalar_row_forms(element); }
const RowNorms& avx512_row_norms(Element element) { return scalar_row_norms(element); }
const WholeForm* avx512_whole_form() { return nullptr; }
const BlockForm& avx512_block_form() { return scalar_block_form(); }
GroupedFn avx512_grouped_products() { return scalar_grouped_products(); }
IntProductsFn avx512_int_products() { return scalar_int_products(); }
const AttentionFns& avx512_attention_fns() { return scalar_attention_fns(); }
}  // namespace airgraph::own
#endif
