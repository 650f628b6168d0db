// Row products and attention by AVX2, FMA and F16C.
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
#include <immintrin.h>

#define AIRGRAPH_ENTRY __attribute__((target("avx2,fma,f16c")))
#define AIRGRAPH_SIMD inline __attribute__((target("avx2,fma,f16c"), always_inline))

namespace airgraph::own {
namespace {
namespace avx2 {

struct Vec {
  static constexpr int64_t kWidth = 8;
  static constexpr int kSums = 8;
  static constexpr int64_t kAhead = 384;
  using F = __m256;

  AIRGRAPH_SIMD static F zero() { return _mm256_setzero_ps(); }
  AIRGRAPH_SIMD static F add(F a, F b) { return _mm256_add_ps(a, b); }
  AIRGRAPH_SIMD static F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  AIRGRAPH_SIMD static F load(const float* from) { return _mm256_loadu_ps(from); }
  AIRGRAPH_SIMD static F load(const Bf16* from) {
    const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
  }
  AIRGRAPH_SIMD static F load(const F16* from) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  }
  AIRGRAPH_SIMD static F load(const int8_t* from) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from))));
  }
  AIRGRAPH_SIMD static F load_part(const float* from, int64_t count) {
    const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_maskload_ps(from, _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)), lanes));
  }
  template <class T>
  AIRGRAPH_SIMD static F load_part(const T* from, int64_t count) {
    T whole[kWidth] = {};
    for (int64_t i = 0; i < count; ++i) {
      whole[i] = from[i];
    }
    return load(whole);
  }
  AIRGRAPH_SIMD static F set(float value) { return _mm256_set1_ps(value); }
  AIRGRAPH_SIMD static F mul(F a, F b) { return _mm256_mul_ps(a, b); }
  AIRGRAPH_SIMD static F div(F a, F b) { return _mm256_div_ps(a, b); }
  AIRGRAPH_SIMD static bool any_above(F a, F b) { return _mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_NLE_UQ)) != 0; }
  AIRGRAPH_SIMD static F sqrt(F a) { return _mm256_sqrt_ps(a); }
  AIRGRAPH_SIMD static F sub(F a, F b) { return _mm256_sub_ps(a, b); }
  AIRGRAPH_SIMD static F number_or_zero(F a) { return _mm256_and_ps(a, _mm256_cmp_ps(a, a, _CMP_ORD_Q)); }
  AIRGRAPH_SIMD static F max(F a, F b) { return _mm256_max_ps(a, b); }
  AIRGRAPH_SIMD static F round(F a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  // By two powers, since one alone does not reach the smallest numbers.
  AIRGRAPH_SIMD static F times_power(F a, F n) {
    const __m256i whole = _mm256_cvtps_epi32(n);
    const __m256i half = _mm256_srai_epi32(whole, 1);
    const __m256i rest = _mm256_sub_epi32(whole, half);
    return _mm256_mul_ps(_mm256_mul_ps(a, power(half)), power(rest));
  }
  AIRGRAPH_SIMD static F power(__m256i n) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
  }
  AIRGRAPH_SIMD static void store(float* to, F a) { _mm256_storeu_ps(to, a); }
  AIRGRAPH_SIMD static void store(Bf16* to, F a) {
    const __m256i bits = _mm256_castps_si256(a);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF)));
    const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(a, a, _CMP_UNORD_Q));
    const __m256i found = _mm256_blendv_epi8(_mm256_srli_epi32(rounded, 16), _mm256_set1_epi32(0x7FC0), is_nan);
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(found, found), 0x08);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_castsi256_si128(packed));
  }
  AIRGRAPH_SIMD static void store(F16* to, F a) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
  }
  // By Cephes' polynomial: within two units of the last place.
  AIRGRAPH_SIMD static F exp(F x) {
    const F low = max(set(-104.0F), x);
    const F n = round(mul(low, set(1.44269504088896341F)));
    F r = fma(n, set(-0.693359375F), low);
    r = fma(n, set(2.12194440e-4F), r);
    F p = set(1.9875691500e-4F);
    p = fma(p, r, set(1.3981999507e-3F));
    p = fma(p, r, set(8.3334519073e-3F));
    p = fma(p, r, set(4.1665795894e-2F));
    p = fma(p, r, set(1.6666665459e-1F));
    p = fma(p, r, set(5.0000001201e-1F));
    return times_power(add(fma(p, mul(r, r), r), set(1.0F)), n);
  }
  AIRGRAPH_SIMD static void prefetch(const void* at) { _mm_prefetch(static_cast<const char*>(at), _MM_HINT_T0); }
  AIRGRAPH_SIMD static void sum4(const F* s, float* to) {
    const __m256 halves = _mm256_hadd_ps(_mm256_hadd_ps(s[0], s[1]), _mm256_hadd_ps(s[2], s[3]));
    _mm_storeu_ps(to, _mm_add_ps(_mm256_castps256_ps128(halves), _mm256_extractf128_ps(halves, 1)));
  }
};

// Whole numbers of 16 bits.
struct Whole {
  static constexpr int64_t kWidth = 16;  // of a vector
  using I = __m256i;

  AIRGRAPH_SIMD static void store(int16_t* to, Vec::F a) {
    const __m256i whole = _mm256_cvtps_epi32(a);
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packs_epi32(whole, whole), 0x08);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_castsi256_si128(packed));
  }
  AIRGRAPH_SIMD static I zero() { return _mm256_setzero_si256(); }
  AIRGRAPH_SIMD static I widen(const int8_t* bytes) {
    return _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes)));
  }
  AIRGRAPH_SIMD static I add_products(I sum, I wide, const int16_t* shorts) {
    const __m256i row = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(shorts));
    I next = _mm256_add_epi32(sum, _mm256_madd_epi16(wide, row));
    // Else GCC adds the products of a line first, which are more than there are registers: a third of the time.
    asm("" : "+x"(next));
    return next;
  }
  AIRGRAPH_SIMD static Vec::F as_floats(I sum) { return _mm256_cvtepi32_ps(sum); }
  AIRGRAPH_SIMD static int32_t total(I sum) {
    const __m128i four = _mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
    const __m128i two = _mm_add_epi32(four, _mm_srli_si128(four, 8));
    return _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_srli_si128(two, 4)));
  }
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

}  // namespace avx2
}  // namespace

RowProductsFn avx2_row_products(Element element) { return avx2::entry(element); }

RowOpFn avx2_row_op(RowOp op, Second second, Element in, Element out) {
  return avx2::row_op_entry(op, second, in, out);
}

RowOpFn avx2_row_argmax(Element in) { return avx2::argmax_entry(in); }

const RowForms& avx2_row_forms(Element element) { return avx2::forms_entry(element); }

const RowNorms& avx2_row_norms(Element element) { return avx2::norms_entry(element); }

const WholeForm* avx2_whole_form() { return &avx2::whole_form_entry(); }

const BlockForm& avx2_block_form() { return avx2::block_entry(); }

GroupedFn avx2_grouped_products() { return &avx2::run_groups; }

IntProductsFn avx2_int_products() { return &avx2::run_ints; }

const AttentionFns& avx2_attention_fns() {
  static const AttentionFns fns = avx2::attention_entries();
  return fns;
}

}  // namespace airgraph::own

#undef AIRGRAPH_SIMD
#undef AIRGRAPH_ENTRY
#else
namespace airgraph::own {
RowProductsFn avx2_row_products(Element) { return nullptr; }
RowOpFn avx2_row_op(RowOp op, Second second, Element in, Element out) { return scalar_row_op(op, second, in, out); }
RowOpFn avx2_row_argmax(Element in) { return scalar_row_argmax(in); }
const RowForms& avx2_row_forms(Element element) { return scalar_row_forms(element); }
const RowNorms& avx2_row_norms(Element element) { return scalar_row_norms(element); }
const WholeForm* avx2_whole_form() { return nullptr; }
const BlockForm& avx2_block_form() { return scalar_block_form(); }
GroupedFn avx2_grouped_products() { return scalar_grouped_products(); }
IntProductsFn avx2_int_products() { return scalar_int_products(); }
const AttentionFns& avx2_attention_fns() { return scalar_attention_fns(); }
}  // namespace airgraph::own
#endif
