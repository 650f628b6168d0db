// Row products by the instructions of AVX-512 that add up products of several numbers at once: VNNI and BF16, each
// where the processor has it.
#include "elements.h"
#include "row_products.h"
#include "whole_rows.h"

#if defined(__x86_64__)
// A false alarm of GCC 12 about its own header.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>

#define AIRGRAPH_AVX512 "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma"

namespace airgraph::own {
namespace {

constexpr int kBlock = 4;

namespace vnni {

#define AIRGRAPH_ENTRY __attribute__((target(AIRGRAPH_AVX512 ",avx512vnni")))
#define AIRGRAPH_SIMD inline __attribute__((target(AIRGRAPH_AVX512 ",avx512vnni"), always_inline))

#include "avx512_vec.h"

// Whole numbers of 16 bits as two digits of 8 bits with their signs, high and low, and rests as a third, one row of
// digits after another. Bytes of the matrix are multiplied as numbers from 0 on, 128 too large; sums start as much
// lower.
struct WholeNumbers {
  static constexpr float kLargest = 127 * 256 + 127;
  static constexpr float kRestsOfOne = 254;
  static constexpr int64_t kWidth = 64;  // bytes of a vector
  static constexpr int64_t kDigits = 3;

  AIRGRAPH_SIMD static int64_t padded(int64_t k) { return (k + kWidth - 1) / kWidth * kWidth; }
  // The digits, and a vector for each that its sums start with.
  AIRGRAPH_SIMD static size_t nbytes(int64_t k) { return static_cast<size_t>(kDigits * (padded(k) + kWidth)); }

  AIRGRAPH_SIMD static void store(char* memory, int64_t k, int64_t i, Vec::F whole, Vec::F rest) {
    const __m512i number = _mm512_cvtps_epi32(whole);
    const __m512i high = _mm512_srai_epi32(_mm512_add_epi32(number, _mm512_set1_epi32(128)), 8);
    const __m512i low = _mm512_sub_epi32(number, _mm512_slli_epi32(high, 8));
    const __m512i last = _mm512_cvtps_epi32(Vec::mul(rest, Vec::set(kRestsOfOne)));
    store_bytes(memory + i, high);
    store_bytes(memory + padded(k) + i, low);
    store_bytes(memory + 2 * padded(k) + i, last);
  }
  AIRGRAPH_SIMD static void finish(char* memory, int64_t k) {
    for (int64_t digit = 0; digit < kDigits; ++digit) {
      __m512i sum = _mm512_setzero_si512();
      for (int64_t i = 0; i < padded(k); i += kWidth) {
        sum = add_product(sum, high_bits(), memory + digit * padded(k) + i);
      }
      _mm512_storeu_si512(memory + kDigits * padded(k) + digit * kWidth, _mm512_sub_epi32(_mm512_setzero_si512(), sum));
    }
  }

  // Of kPlaces rows, `step` after one another; `ahead` bytes from where it reads it asks for what comes.
  AIRGRAPH_SIMD static void sums(const char* memory, int64_t k, const int8_t* right, int64_t step, int64_t ahead,
                                 Vec::F* found) {
    __m512i sums[kPlaces][kDigits];
#pragma GCC unroll 4
    for (int row = 0; row < kPlaces; ++row) {
#pragma GCC unroll 4
      for (int digit = 0; digit < kDigits; ++digit) {
        sums[row][digit] = _mm512_loadu_si512(memory + kDigits * padded(k) + digit * kWidth);
      }
    }
    for (int64_t i = 0; i < k; i += kWidth) {
      __m512i digits[kDigits];
#pragma GCC unroll 4
      for (int digit = 0; digit < kDigits; ++digit) {
        digits[digit] = _mm512_loadu_si512(memory + digit * padded(k) + i);
      }
#pragma GCC unroll 4
      for (int row = 0; row < kPlaces; ++row) {
        const int8_t* at = right + row * step + i;
        Vec::prefetch(at + ahead);
        const __m512i numbers =
            k - i >= kWidth ? _mm512_loadu_si512(at) : _mm512_maskz_loadu_epi8(~uint64_t{0} >> (kWidth - (k - i)), at);
        const __m512i bytes = _mm512_xor_si512(numbers, high_bits());
#pragma GCC unroll 4
        for (int digit = 0; digit < kDigits; ++digit) {
          sums[row][digit] = _mm512_dpbusd_epi32(sums[row][digit], bytes, digits[digit]);
        }
      }
    }
#pragma GCC unroll 4
    for (int row = 0; row < kPlaces; ++row) {
      const auto whole = Vec::fma(_mm512_cvtepi32_ps(sums[row][0]), Vec::set(256), _mm512_cvtepi32_ps(sums[row][1]));
      found[row] = Vec::fma(_mm512_cvtepi32_ps(sums[row][2]), Vec::set(1 / kRestsOfOne), whole);
    }
  }

  AIRGRAPH_SIMD static Vec::F sum(const char* memory, int64_t k, const int8_t* right) {
    __m512i sums[kDigits];
    for (int digit = 0; digit < kDigits; ++digit) {
      sums[digit] = _mm512_loadu_si512(memory + kDigits * padded(k) + digit * kWidth);
    }
    int64_t i = 0;
    for (; i + kWidth <= k; i += kWidth) {
      add_products(sums, _mm512_loadu_si512(right + i), memory + i, padded(k));
    }
    if (i < k) {
      add_products(sums, _mm512_maskz_loadu_epi8(~uint64_t{0} >> (kWidth - (k - i)), right + i), memory + i, padded(k));
    }
    const auto whole = Vec::fma(_mm512_cvtepi32_ps(sums[0]), Vec::set(256), _mm512_cvtepi32_ps(sums[1]));
    return Vec::fma(_mm512_cvtepi32_ps(sums[2]), Vec::set(1 / kRestsOfOne), whole);
  }

 private:
  AIRGRAPH_SIMD static __m512i high_bits() { return _mm512_set1_epi8(static_cast<char>(0x80)); }
  AIRGRAPH_SIMD static void store_bytes(char* to, __m512i numbers) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm512_cvtepi32_epi8(numbers));
  }
  AIRGRAPH_SIMD static __m512i add_product(__m512i sum, __m512i bytes, const char* digits) {
    return _mm512_dpbusd_epi32(sum, bytes, _mm512_loadu_si512(digits));
  }
  AIRGRAPH_SIMD static void add_products(__m512i* sums, __m512i right, const char* digits, int64_t step) {
    const __m512i bytes = _mm512_xor_si512(right, high_bits());
#pragma GCC unroll 4
    for (int digit = 0; digit < kDigits; ++digit) {
      sums[digit] = add_product(sums[digit], bytes, digits + digit * step);
    }
  }
};

#include "whole_rows_body.h"

#undef AIRGRAPH_SIMD
#undef AIRGRAPH_ENTRY

}  // namespace vnni

namespace bf16 {

#define AIRGRAPH_ENTRY __attribute__((target(AIRGRAPH_AVX512 ",avx512bf16")))
#define AIRGRAPH_SIMD inline __attribute__((target(AIRGRAPH_AVX512 ",avx512bf16"), always_inline))

#include "avx512_vec.h"

constexpr int64_t kWidth = 32;  // numbers of a vector

AIRGRAPH_SIMD __m512bh load(const Bf16* from) { return reinterpret_cast<__m512bh>(_mm512_loadu_si512(from)); }
AIRGRAPH_SIMD __m512bh load_part(const Bf16* from, int64_t count) {
  return reinterpret_cast<__m512bh>(_mm512_maskz_loadu_epi16(~uint32_t{0} >> (kWidth - count), from));
}

// So many steps are summed apart: a chain of additions as long as a row is has a worse sum than BLAS's.
constexpr int64_t kFold = 64;

// The sums of M rows of `left` with R rows of `right`, each in kParts vectors.
template <int M, int R, int kParts>
AIRGRAPH_SIMD void sums_of(const RowProducts& p, const Bf16* left, const Bf16* right, Vec::F (*totals)[R]) {
  constexpr int64_t kStep = kParts * kWidth;
  for (int64_t k = 0; k < p.k || k == 0;) {
    const bool is_first = k == 0;
    const int64_t until = p.k - k > kFold * kStep ? k + kFold * kStep : p.k;
    Vec::F sums[kParts][M][R];
#pragma GCC unroll 8
    for (int part = 0; part < kParts; ++part) {
#pragma GCC unroll 8
      for (int m = 0; m < M; ++m) {
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
          sums[part][m][r] = Vec::zero();
        }
      }
    }
    for (; k + kStep <= until; k += kStep) {
#pragma GCC unroll 8
      for (int part = 0; part < kParts; ++part) {
        const int64_t at = k + part * kWidth;
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
          if (R > 1) {
            // The next rows, as one stream.
            Vec::prefetch(right + R * p.right_ld + R * at + r * kWidth);
          }
          const auto w = load(right + r * p.right_ld + at);
#pragma GCC unroll 8
          for (int m = 0; m < M; ++m) {
            sums[part][m][r] = _mm512_dpbf16_ps(sums[part][m][r], load(left + m * p.left_ld + at), w);
          }
        }
      }
    }
    for (; k < until; k += kWidth) {
      const int64_t count = until - k < kWidth ? until - k : kWidth;
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const auto w = load_part(right + r * p.right_ld + k, count);
#pragma GCC unroll 8
        for (int m = 0; m < M; ++m) {
          sums[0][m][r] = _mm512_dpbf16_ps(sums[0][m][r], load_part(left + m * p.left_ld + k, count), w);
        }
      }
    }
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m) {
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
        for (int part = 1; part < kParts; ++part) {
          sums[0][m][r] = Vec::add(sums[0][m][r], sums[part][m][r]);
        }
        totals[m][r] = is_first ? sums[0][m][r] : Vec::add(totals[m][r], sums[0][m][r]);
      }
    }
  }
}

// One row with the rows [begin, end) of `right` one after the other, as one stream; four are added up together.
AIRGRAPH_SIMD void pass_one(const RowProducts& p, const Bf16* left, float* out, int64_t begin, int64_t end) {
  const auto* right = static_cast<const Bf16*>(p.right) + begin * p.right_ld;
  for (int64_t n = begin; n < end; n += kBlock, out += kBlock) {
    Vec::F four[kBlock][1];
    float found[kBlock];
#pragma GCC unroll 4
    for (int i = 0; i < kBlock; ++i, right += p.right_ld) {
      if (n + i < end) {
        sums_of<1, 1, 2>(p, left, right, &four[i]);
      } else {
        four[i][0] = Vec::zero();
      }
    }
    Vec::sum4(&four[0][0], found);
    for (int i = 0; i < kBlock && n + i < end; ++i) {
      out[i] = found[i];
    }
  }
}

// M rows from `m` on.
template <int M>
AIRGRAPH_SIMD void pass(const RowProducts& p, int64_t m, int64_t begin, int64_t end) {
  const auto* left = static_cast<const Bf16*>(p.left) + m * p.left_ld;
  const auto* right = static_cast<const Bf16*>(p.right);
  float* out = p.out + m * p.out_ld;
  int64_t n = begin;
  for (; n + kBlock <= end; n += kBlock, out += kBlock) {
    Vec::F totals[M][kBlock];
    sums_of<M, kBlock, 1>(p, left, right + n * p.right_ld, totals);
#pragma GCC unroll 4
    for (int i = 0; i < M; ++i) {
      Vec::sum4(totals[i], out + i * p.out_ld);
    }
  }
  for (int i = 0; i < M; ++i) {
    pass_one(p, left + i * p.left_ld, out + i * p.out_ld, n, end);
  }
}

AIRGRAPH_ENTRY void run(const RowProducts& p, int64_t begin, int64_t end) {
  int64_t m = 0;
  for (; p.rows - m >= 4; m += 4) {
    pass<4>(p, m, begin, end);
  }
  switch (p.rows - m) {
    case 3:
      return pass<3>(p, m, begin, end);
    case 2:
      return pass<2>(p, m, begin, end);
    case 1:
      return pass_one(p, static_cast<const Bf16*>(p.left) + m * p.left_ld, p.out + m * p.out_ld, begin, end);
    default:
      return;
  }
}

#undef AIRGRAPH_SIMD
#undef AIRGRAPH_ENTRY

}  // namespace bf16
}  // namespace

const WholeForm* avx512_dots_whole_form() {
  return __builtin_cpu_supports("avx512vnni") ? &vnni::whole_form_entry() : nullptr;
}

RowProductsFn avx512_dots_row_products() { return __builtin_cpu_supports("avx512bf16") ? &bf16::run : nullptr; }

}  // namespace airgraph::own

#undef AIRGRAPH_AVX512
#else
namespace airgraph::own {
const WholeForm* avx512_dots_whole_form() { return nullptr; }
RowProductsFn avx512_dots_row_products() { return nullptr; }
}  // namespace airgraph::own
#endif
