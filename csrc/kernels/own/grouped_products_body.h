// The loops of grouped_products.h, included as row_products_body.h is, after it.

// An element of the result as eager has it, each weight scaled before it is multiplied: a group's sum may be more than
// float32 holds though its scaled one is not, and an infinite scale makes no number of a lane's zero.
AIRGRAPH_SIMD float scaled_first(const GroupedProducts& p, int64_t m) {
  const float* left = p.left + m * p.left_ld;
  auto sums = Vec::zero();
  double total = 0;
  int64_t g = 0;
  for (int64_t begin = 0; begin < p.k; begin += p.group, ++g) {
    const int64_t end = begin + p.group;
    const int zero = p.zeros == nullptr ? 0 : p.zeros[g];
    const auto zeros = Vec::set(static_cast<float>(zero)), scale = Vec::set(p.scales[g]);
    int64_t k = begin;
    for (; k + Vec::kWidth <= end; k += Vec::kWidth) {
      sums = Vec::fma(Vec::load(left + k), Vec::mul(Vec::sub(Vec::load(p.right + k), zeros), scale), sums);
    }
    for (; k < end; ++k) {
      total += static_cast<double>(left[k]) * (static_cast<float>(p.right[k] - zero) * p.scales[g]);
    }
  }
  float lanes[Vec::kWidth];
  Vec::store(lanes, sums);
  for (const float lane : lanes) {
    total += lane;
  }
  return static_cast<float>(total);
}

// M rows of `left` from `m` on.
template <int M>
AIRGRAPH_SIMD void groups_of(const GroupedProducts& p, int64_t m) {
  const float* left = p.left + m * p.left_ld;
  typename Vec::F totals[kBlock];
#pragma GCC unroll 4
  for (int i = 0; i < kBlock; ++i) {
    totals[i] = Vec::zero();
  }
  int64_t g = 0;
  for (int64_t begin = 0; begin < p.k; begin += p.group, ++g) {
    const int64_t end = begin + p.group;
    const auto zero = p.zeros == nullptr ? Vec::zero() : Vec::set(static_cast<float>(p.zeros[g]));
    typename Vec::F sums[M];
#pragma GCC unroll 4
    for (int i = 0; i < M; ++i) {
      sums[i] = Vec::zero();
    }
    int64_t k = begin;
    for (; k + Vec::kWidth <= end; k += Vec::kWidth) {
      const auto numbers = Vec::sub(Vec::load(p.right + k), zero);
#pragma GCC unroll 4
      for (int i = 0; i < M; ++i) {
        sums[i] = Vec::fma(Vec::load(left + i * p.left_ld + k), numbers, sums[i]);
      }
    }
    if (k < end) {
      const auto numbers = Vec::sub(Vec::load_part(p.right + k, end - k), zero);
#pragma GCC unroll 4
      for (int i = 0; i < M; ++i) {
        sums[i] = Vec::fma(Vec::load_part(left + i * p.left_ld + k, end - k), numbers, sums[i]);
      }
    }
    const auto scale = Vec::set(p.scales[g]);
#pragma GCC unroll 4
    for (int i = 0; i < M; ++i) {
      totals[i] = Vec::fma(sums[i], scale, totals[i]);
    }
  }
  float found[kBlock];
  Vec::sum4(totals, found);
#pragma GCC unroll 4
  for (int i = 0; i < M; ++i) {
    const bool is_finite = found[i] - found[i] == 0;
    p.out[(m + i) * p.out_ld] = is_finite ? found[i] : scaled_first(p, m + i);
  }
}

AIRGRAPH_ENTRY void run_groups(const GroupedProducts& p) {
  int64_t m = 0;
  for (; p.rows - m >= kBlock; m += kBlock) {
    groups_of<kBlock>(p, m);
  }
  switch (p.rows - m) {
    case 3:
      return groups_of<3>(p, m);
    case 2:
      return groups_of<2>(p, m);
    case 1:
      return groups_of<1>(p, m);
    default:
      return;
  }
}
