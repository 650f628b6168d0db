// The loops of int_products.h over a `Whole`, see shorts_body.h, which also has
//   total(I)                      the sum of its numbers

template <int M>
AIRGRAPH_SIMD void int_sums_of(const IntProducts& p, int64_t m, const int8_t* right, int32_t* out) {
  const int16_t* left = p.left + m * p.left_ld;
  Whole::I sums[M];
#pragma GCC unroll 4
  for (int i = 0; i < M; ++i) {
    sums[i] = Whole::zero();
  }
  int64_t k = 0;
  for (; k + Whole::kWidth <= p.k; k += Whole::kWidth) {
    const auto wide = Whole::widen(right + k);
#pragma GCC unroll 4
    for (int i = 0; i < M; ++i) {
      sums[i] = Whole::add_products(sums[i], wide, left + i * p.left_ld + k);
    }
  }
  if (k < p.k) {
    int8_t end[Whole::kWidth] = {};
    for (int64_t i = 0; k + i < p.k; ++i) {
      end[i] = right[k + i];
    }
    const auto wide = Whole::widen(end);
#pragma GCC unroll 4
    for (int i = 0; i < M; ++i) {
      sums[i] = Whole::add_products(sums[i], wide, left + i * p.left_ld + k);
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < M; ++i) {
    out[(m + i) * p.out_ld] = Whole::total(sums[i]);
  }
}

AIRGRAPH_ENTRY void run_ints(const IntProducts& p, int64_t begin, int64_t end) {
  static_assert(kIntPadding % Whole::kWidth == 0);
  for (int64_t n = begin; n < end; ++n) {
    const int8_t* right = p.right + n * p.right_ld;
    int32_t* out = p.out + (n - begin);
    int64_t m = 0;
    for (; p.rows - m >= 4; m += 4) {
      int_sums_of<4>(p, m, right, out);
    }
    switch (p.rows - m) {
      case 3:
        int_sums_of<3>(p, m, right, out);
        break;
      case 2:
        int_sums_of<2>(p, m, right, out);
        break;
      case 1:
        int_sums_of<1>(p, m, right, out);
        break;
      default:
        break;
    }
  }
}
