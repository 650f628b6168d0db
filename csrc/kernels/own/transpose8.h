// Turns tiles of floats by AVX. Included once for each instruction set that has it, within a namespace of its own,
// after `AIRGRAPH_SIMD`.

constexpr int64_t kTile = 8;

// to[i * to_ld + j] = from[j * ld + i] for i and j below kTile; `to` and its rows are aligned to 32 bytes.
AIRGRAPH_SIMD void transpose_tile(const float* from, int64_t ld, float* to, int64_t to_ld) {
  constexpr int kLows = 0x44;
  constexpr int kHighs = 0xEE;
  constexpr int kFirstHalves = 0x20;
  constexpr int kSecondHalves = 0x31;
  __m256 rows[kTile];
  __m256 pairs[kTile];
#pragma GCC unroll 8
  for (int i = 0; i < kTile; ++i) {
    rows[i] = _mm256_loadu_ps(from + i * ld);
  }
#pragma GCC unroll 4
  for (int i = 0; i < kTile; i += 2) {
    pairs[i] = _mm256_unpacklo_ps(rows[i], rows[i + 1]);
    pairs[i + 1] = _mm256_unpackhi_ps(rows[i], rows[i + 1]);
  }
#pragma GCC unroll 2
  for (int i = 0; i < kTile; i += 4) {
    rows[i] = _mm256_shuffle_ps(pairs[i], pairs[i + 2], kLows);
    rows[i + 1] = _mm256_shuffle_ps(pairs[i], pairs[i + 2], kHighs);
    rows[i + 2] = _mm256_shuffle_ps(pairs[i + 1], pairs[i + 3], kLows);
    rows[i + 3] = _mm256_shuffle_ps(pairs[i + 1], pairs[i + 3], kHighs);
  }
#pragma GCC unroll 4
  for (int i = 0; i < kTile / 2; ++i) {
    _mm256_store_ps(to + i * to_ld, _mm256_permute2f128_ps(rows[i], rows[i + 4], kFirstHalves));
    _mm256_store_ps(to + (i + 4) * to_ld, _mm256_permute2f128_ps(rows[i], rows[i + 4], kSecondHalves));
  }
}
