// The loops of row_norms.h, included after row_ops_body.h.

// The square of what an element is apart from the mean.
struct SquaredFrom {
  explicit AIRGRAPH_SIMD SquaredFrom(float mean) : mean(Vec::set(mean)), wide_mean(mean) {}
  AIRGRAPH_SIMD Vec::F of(Vec::F a) const {
    const auto apart = Vec::sub(a, mean);
    return Vec::mul(apart, apart);
  }
  AIRGRAPH_SIMD double wide(float a) const { return (a - wide_mean) * (a - wide_mean); }

  Vec::F mean;
  double wide_mean;
};

// Where the distance from the mean may be more than float32 holds, or what it is divided by too little.
AIRGRAPH_SIMD Vec::F normalised_in_double(Vec::F value, double mean, double rstd) {
  float lanes[Vec::kWidth];
  Vec::store(lanes, value);
  for (float& lane : lanes) {
    lane = static_cast<float>((lane - mean) * rstd);
  }
  return Vec::load(lanes);
}

// In two passes: a variance from the sum of squares would lose what is small beside the mean.
template <class T>
AIRGRAPH_ENTRY void run_layer_norm(const NormCall& call) {
  const auto* weight = reinterpret_cast<const T*>(call.weight);
  const auto* bias = reinterpret_cast<const T*>(call.bias);
  const auto count = static_cast<double>(call.count);
  for (int64_t row = 0; row < call.rows; ++row) {
    const auto* from = reinterpret_cast<const T*>(call.in) + row * call.count;
    auto* out = reinterpret_cast<T*>(call.out) + row * call.count;
    const SquaredFrom squared(static_cast<float>(sum_of(from, call.count, AsItIs()) / count));
    const auto mean = squared.mean;
    const double variance = sum_of(from, call.count, squared) / count;
    const double wide_rstd = 1 / __builtin_sqrt(variance + call.eps);
    const auto rstd = Vec::set(static_cast<float>(wide_rstd));
    const bool is_wide = variance > __FLT_MAX__;
    for (int64_t i = 0; i < call.count; i += Vec::kWidth) {
      const int64_t part = call.count - i < Vec::kWidth ? call.count - i : Vec::kWidth;
      const bool is_whole = part == Vec::kWidth;
      auto value = is_whole ? Vec::load(from + i) : Vec::load_part(from + i, part);
      value =
          is_wide ? normalised_in_double(value, squared.wide_mean, wide_rstd) : Vec::mul(Vec::sub(value, mean), rstd);
      const auto by = weight == nullptr ? Vec::set(1)
                      : is_whole        ? Vec::load(weight + i)
                                        : Vec::load_part(weight + i, part);
      const auto plus = bias == nullptr ? Vec::zero() : is_whole ? Vec::load(bias + i) : Vec::load_part(bias + i, part);
      value = Vec::fma(value, by, plus);
      if (is_whole) {
        Vec::store(out + i, value);
      } else {
        store_part(out + i, value, part);
      }
    }
    store_part(reinterpret_cast<T*>(call.mean) + row, mean, 1);
    store_part(reinterpret_cast<T*>(call.rstd) + row, rstd, 1);
  }
}

template <class T>
AIRGRAPH_SIMD float largest_of(const T* from, int64_t count) {
  auto most = Vec::set(-__builtin_inff());
  int64_t i = 0;
  for (; i + Vec::kWidth <= count; i += Vec::kWidth) {
    most = Vec::max(most, Vec::load(from + i));
  }
  float lanes[Vec::kWidth];
  Vec::store(lanes, most);
  float largest = lanes[0];
  for (const float lane : lanes) {
    largest = lane > largest ? lane : largest;
  }
  if (i < count) {
    Vec::store(lanes, Vec::load_part(from + i, count - i));
    for (int64_t j = 0; i + j < count; ++j) {
      largest = lanes[j] > largest ? lanes[j] : largest;
    }
  }
  return largest;
}

// What is no number need not be the largest: the sum of the exponentials is none then, and so is the whole row.
template <class T>
AIRGRAPH_ENTRY void run_softmax(const NormCall& call) {
  for (int64_t row = 0; row < call.rows; ++row) {
    const auto* from = reinterpret_cast<const T*>(call.in) + row * call.count;
    auto* out = reinterpret_cast<T*>(call.out) + row * call.count;
    const auto largest = Vec::set(largest_of(from, call.count));
    for (int64_t i = 0; i < call.count; i += Vec::kWidth) {
      const int64_t part = call.count - i < Vec::kWidth ? call.count - i : Vec::kWidth;
      if (part == Vec::kWidth) {
        Vec::store(call.scratch + i, Vec::exp(Vec::sub(Vec::load(from + i), largest)));
      } else {
        store_part(call.scratch + i, Vec::exp(Vec::sub(Vec::load_part(from + i, part), largest)), part);
      }
    }
    const auto total = Vec::set(static_cast<float>(sum_of(call.scratch, call.count, AsItIs())));
    for (int64_t i = 0; i < call.count; i += Vec::kWidth) {
      const int64_t part = call.count - i < Vec::kWidth ? call.count - i : Vec::kWidth;
      if (part == Vec::kWidth) {
        Vec::store(out + i, Vec::div(Vec::load(call.scratch + i), total));
      } else {
        store_part(out + i, Vec::div(Vec::load_part(call.scratch + i, part), total), part);
      }
    }
  }
}

inline const RowNorms& norms_entry(Element element) {
  static const RowNorms f32{&run_layer_norm<float>, &run_softmax<float>};
  static const RowNorms bf16{&run_layer_norm<Bf16>, &run_softmax<Bf16>};
  static const RowNorms f16{&run_layer_norm<F16>, &run_softmax<F16>};
  switch (element) {
    case Element::bf16:
      return bf16;
    case Element::f16:
      return f16;
    default:
      return f32;
  }
}
