// The loops of attention.h over one kind of vector; see row_products_body.h. Of `Vec` they also need:
//   set(float), mul(a, b), sub(a, b), max(a, b)   NaN in `b` stays
//   exp(x)                                        of numbers that are not above zero
//   store(float*, a)

// Rows that are summed before they are added to the rest: shorter chains make the better sum.
constexpr int64_t kRowsTogether = 32;

template <class T, int M, int C>
AIRGRAPH_SIMD void weighted_columns(const WeightedRows& p, const float* weights, int64_t n, float* out) {
  typename Vec::F sums[M][C];
#pragma GCC unroll 8
  for (int m = 0; m < M; ++m) {
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) {
      sums[m][c] = Vec::zero();
    }
  }
  for (int64_t block = 0; block < p.count; block += kRowsTogether) {
    const int64_t end = block + kRowsTogether < p.count ? block + kRowsTogether : p.count;
    typename Vec::F part[M][C];
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m) {
#pragma GCC unroll 8
      for (int c = 0; c < C; ++c) {
        part[m][c] = Vec::zero();
      }
    }
    for (int64_t t = block; t < end; ++t) {
      const T* row = static_cast<const T*>(p.right) + t * p.right_ld + n;
#pragma GCC unroll 8
      for (int c = 0; c < C; ++c) {
        const auto v = Vec::load(row + c * Vec::kWidth);
#pragma GCC unroll 8
        for (int m = 0; m < M; ++m) {
          part[m][c] = Vec::fma(Vec::set(weights[m * p.weights_ld + t]), v, part[m][c]);
        }
      }
    }
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m) {
#pragma GCC unroll 8
      for (int c = 0; c < C; ++c) {
        sums[m][c] = Vec::add(sums[m][c], part[m][c]);
      }
    }
  }
#pragma GCC unroll 8
  for (int m = 0; m < M; ++m) {
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) {
      Vec::store(out + m * p.out_ld + n + c * Vec::kWidth, sums[m][c]);
    }
  }
}

template <class T, int M>
AIRGRAPH_SIMD void weighted_rows(const WeightedRows& p, int64_t m) {
  constexpr int kColumns = Vec::kSums / (2 * M) < 1 ? 1 : (Vec::kSums / (2 * M) > 4 ? 4 : Vec::kSums / (2 * M));
  const float* weights = p.weights + m * p.weights_ld;
  float* out = p.out + m * p.out_ld;
  int64_t n = 0;
  for (; n + kColumns * Vec::kWidth <= p.n; n += kColumns * Vec::kWidth) {
    weighted_columns<T, M, kColumns>(p, weights, n, out);
  }
  for (; n + Vec::kWidth <= p.n; n += Vec::kWidth) {
    weighted_columns<T, M, 1>(p, weights, n, out);
  }
  if (n == p.n) {
    return;
  }
  for (int i = 0; i < M; ++i) {
    auto sum = Vec::zero();
    for (int64_t t = 0; t < p.count; ++t) {
      const T* row = static_cast<const T*>(p.right) + t * p.right_ld + n;
      sum = Vec::fma(Vec::set(weights[i * p.weights_ld + t]), Vec::load_part(row, p.n - n), sum);
    }
    float found[Vec::kWidth];
    Vec::store(found, sum);
    for (int64_t at = n; at < p.n; ++at) {
      out[i * p.out_ld + at] = found[at - n];
    }
  }
}

template <class T>
AIRGRAPH_ENTRY void weigh(const WeightedRows& p) {
  int64_t m = 0;
  for (; p.rows - m >= 3; m += 3) {
    weighted_rows<T, 3>(p, m);
  }
  for (; p.rows - m >= 1; ++m) {
    weighted_rows<T, 1>(p, m);
  }
}

inline AIRGRAPH_ENTRY float softmax(float* scores, const float* mask, int64_t count, float scale) {
  constexpr float kNone = -__builtin_inff();
  const auto by = Vec::set(scale);
  auto largest = Vec::set(kNone);
  int64_t t = 0;
  for (; t + Vec::kWidth <= count; t += Vec::kWidth) {
    auto x = Vec::mul(Vec::load(scores + t), by);
    x = mask == nullptr ? x : Vec::add(x, Vec::load(mask + t));
    Vec::store(scores + t, x);
    largest = Vec::max(x, largest);
  }
  float lanes[Vec::kWidth];
  Vec::store(lanes, largest);
  float most = kNone;
  for (int i = 0; i < Vec::kWidth; ++i) {
    most = lanes[i] > most ? lanes[i] : most;
  }
  for (; t < count; ++t) {
    scores[t] = scores[t] * scale + (mask == nullptr ? 0.0F : mask[t]);
    most = scores[t] > most ? scores[t] : most;
  }
  const int64_t padded = (count + kPadding - 1) / kPadding * kPadding;
  for (; t < padded; ++t) {
    scores[t] = kNone;
  }
  const auto shift = Vec::set(most == kNone ? 0.0F : most);
  auto sum = Vec::zero();
  for (t = 0; t < padded; t += Vec::kWidth) {
    const auto e = Vec::exp(Vec::sub(Vec::load(scores + t), shift));
    Vec::store(scores + t, e);
    sum = Vec::add(sum, e);
  }
  Vec::store(lanes, sum);
  float total = 0;
  for (int i = 0; i < Vec::kWidth; ++i) {
    total += lanes[i];
  }
  return total;
}

inline AttentionFns attention_entries() {
  return {{&weigh<float>, &weigh<Bf16>, &weigh<F16>, &weigh<int8_t>}, &softmax};
}
