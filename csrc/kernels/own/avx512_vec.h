// Vectors of AVX-512 for the bodies here (F, BW, DQ, VL: what ATen asks of a processor for its own). Included once in a
// file, within a namespace of its own, after `AIRGRAPH_SIMD`.

struct Vec {
  static constexpr int64_t kWidth = 16;
  static constexpr int kSums = 16;
  static constexpr int64_t kAhead = 1024;
  using F = __m512;

  AIRGRAPH_SIMD static F zero() { return _mm512_setzero_ps(); }
  AIRGRAPH_SIMD static F add(F a, F b) { return _mm512_add_ps(a, b); }
  AIRGRAPH_SIMD static F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  AIRGRAPH_SIMD static F of_bf16(__m256i bits) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
  }
  AIRGRAPH_SIMD static F of_i8(__m128i bytes) { return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes)); }
  AIRGRAPH_SIMD static __mmask16 first(int64_t count) { return static_cast<__mmask16>((1U << count) - 1); }

  AIRGRAPH_SIMD static F load(const float* from) { return _mm512_loadu_ps(from); }
  AIRGRAPH_SIMD static F load(const Bf16* from) {
    return of_bf16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  }
  AIRGRAPH_SIMD static F load(const F16* from) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  }
  AIRGRAPH_SIMD static F load(const int8_t* from) {
    return of_i8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  }
  AIRGRAPH_SIMD static F load_part(const float* from, int64_t count) {
    return _mm512_maskz_loadu_ps(first(count), from);
  }
  AIRGRAPH_SIMD static F load_part(const Bf16* from, int64_t count) {
    return of_bf16(_mm256_maskz_loadu_epi16(first(count), from));
  }
  AIRGRAPH_SIMD static F load_part(const F16* from, int64_t count) {
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first(count), from));
  }
  AIRGRAPH_SIMD static F load_part(const int8_t* from, int64_t count) {
    return of_i8(_mm_maskz_loadu_epi8(first(count), from));
  }
  AIRGRAPH_SIMD static __m256 halved(F a) {
    return _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
  }
  AIRGRAPH_SIMD static F set(float value) { return _mm512_set1_ps(value); }
  AIRGRAPH_SIMD static F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  AIRGRAPH_SIMD static F div(F a, F b) { return _mm512_div_ps(a, b); }
  AIRGRAPH_SIMD static bool any_above(F a, F b) { return _mm512_cmp_ps_mask(a, b, _CMP_NLE_UQ) != 0; }
  AIRGRAPH_SIMD static F sqrt(F a) { return _mm512_sqrt_ps(a); }
  AIRGRAPH_SIMD static F sub(F a, F b) { return _mm512_sub_ps(a, b); }
  AIRGRAPH_SIMD static F number_or_zero(F a) { return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(a, a, _CMP_ORD_Q), a); }
  AIRGRAPH_SIMD static F max(F a, F b) { return _mm512_max_ps(a, b); }
  AIRGRAPH_SIMD static F round(F a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  AIRGRAPH_SIMD static F times_power(F a, F n) { return _mm512_scalef_ps(a, n); }
  AIRGRAPH_SIMD static void store(float* to, F a) { _mm512_storeu_ps(to, a); }
  AIRGRAPH_SIMD static void store(Bf16* to, F a) {
    const __m512i bits = _mm512_castps_si512(a);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF)));
    const __mmask16 is_nan = _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q);
    const __m512i found = _mm512_mask_blend_epi32(is_nan, _mm512_srli_epi32(rounded, 16), _mm512_set1_epi32(0x7FC0));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtepi32_epi16(found));
  }
  AIRGRAPH_SIMD static void store(F16* to, F a) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
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
    const __m256 pairs = _mm256_hadd_ps(halved(s[0]), halved(s[1]));
    const __m256 halves = _mm256_hadd_ps(pairs, _mm256_hadd_ps(halved(s[2]), halved(s[3])));
    _mm_storeu_ps(to, _mm_add_ps(_mm256_castps256_ps128(halves), _mm256_extractf128_ps(halves, 1)));
  }
};
