// The loops of row_ops.h, included as row_products_body.h is. Beside what others want, `Vec` has
//   div(a, b), sqrt(a)            rounded to the nearest
//   any_above(a, b)               whether an element of a is not at most b's: larger, or no number

struct AddOp {
  AIRGRAPH_SIMD static Vec::F of(Vec::F a, Vec::F b) { return Vec::add(a, b); }
};
struct SubOp {
  AIRGRAPH_SIMD static Vec::F of(Vec::F a, Vec::F b) { return Vec::sub(a, b); }
};
struct MulOp {
  AIRGRAPH_SIMD static Vec::F of(Vec::F a, Vec::F b) { return Vec::mul(a, b); }
};
struct DivOp {
  AIRGRAPH_SIMD static Vec::F of(Vec::F a, Vec::F b) { return Vec::div(a, b); }
};
struct NegOp {
  AIRGRAPH_SIMD static Vec::F of(Vec::F a, Vec::F /*b*/) { return Vec::mul(a, Vec::set(-1)); }
};
struct SiluOp {
  AIRGRAPH_SIMD static Vec::F of(Vec::F a, Vec::F /*b*/) {
    // exp(89) is infinite already.
    const auto bounded = Vec::max(Vec::set(-89), a);
    return Vec::div(a, Vec::add(Vec::set(1), Vec::exp(Vec::mul(bounded, Vec::set(-1)))));
  }
};
struct RsqrtOp {
  AIRGRAPH_SIMD static Vec::F of(Vec::F a, Vec::F /*b*/) { return Vec::div(Vec::set(1), Vec::sqrt(a)); }
};
struct SquareOp {
  AIRGRAPH_SIMD static Vec::F of(Vec::F a, Vec::F /*b*/) { return Vec::mul(a, a); }
};
struct ReluOp {
  // In this order what is no number stays.
  AIRGRAPH_SIMD static Vec::F of(Vec::F a, Vec::F /*b*/) { return Vec::max(Vec::zero(), a); }
};
struct CopyOp {
  AIRGRAPH_SIMD static Vec::F of(Vec::F a, Vec::F /*b*/) { return a; }
};

template <class T>
AIRGRAPH_SIMD void store_part(T* to, Vec::F value, int64_t count) {
  T rest[Vec::kWidth];
  Vec::store(rest, value);
  for (int64_t i = 0; i < count; ++i) {
    to[i] = rest[i];
  }
}

template <class Op, Second kSecond, class In, class Out>
AIRGRAPH_ENTRY void run_row_op(const RowCall& call) {
  for (int64_t row = 0; row < call.rows; ++row) {
    const auto* a = reinterpret_cast<const In*>(call.a + row * call.a_stride);
    const auto* b = reinterpret_cast<const In*>(call.b + row * call.b_stride);
    auto* out = reinterpret_cast<Out*>(call.out + row * call.out_stride);
    auto second = Vec::set(call.number);
    if constexpr (kSecond == Second::one) {
      float lanes[Vec::kWidth];
      Vec::store(lanes, Vec::load_part(b, 1));
      second = Vec::set(lanes[0]);
    }
    int64_t i = 0;
    for (; i + Vec::kWidth <= call.count; i += Vec::kWidth) {
      if constexpr (kSecond == Second::row) {
        second = Vec::load(b + i);
      }
      Vec::store(out + i, Op::of(Vec::load(a + i), second));
    }
    if (i < call.count) {
      const int64_t count = call.count - i;
      if constexpr (kSecond == Second::row) {
        second = Vec::load_part(b + i, count);
      }
      store_part(out + i, Op::of(Vec::load_part(a + i, count), second), count);
    }
  }
}

struct AsItIs {
  AIRGRAPH_SIMD Vec::F of(Vec::F a) const { return a; }
  AIRGRAPH_SIMD double wide(float a) const { return a; }
};

// The same in float64 throughout, of whole vectors.
template <class T, class Each>
AIRGRAPH_SIMD double sum_one_by_one(const T* from, int64_t count, const Each& each) {
  double total = 0;
  float lanes[Vec::kWidth];
  for (int64_t i = 0; i < count; i += Vec::kWidth) {
    Vec::store(lanes, Vec::load(from + i));
    for (const float lane : lanes) {
      total += each.wide(lane);
    }
  }
  return total;
}

// Of what `each` makes of the elements of a row: in float32 for a stretch, the stretches in float64. A stretch whose
// sum is no finite number in float32 is added up anew: its elements may be.
template <class T, class Each>
AIRGRAPH_SIMD double sum_of(const T* from, int64_t count, const Each& each) {
  constexpr int kParts = 4;
  constexpr int64_t kStep = kParts * Vec::kWidth;
  constexpr int64_t kStretch = 8 * kStep;
  const int64_t whole = count / Vec::kWidth * Vec::kWidth;
  double total = 0;
  int64_t i = 0;
  float lanes[Vec::kWidth];
  while (i < whole) {
    const int64_t begin = i, until = whole - i > kStretch ? i + kStretch : whole;
    typename Vec::F sums[kParts] = {Vec::zero(), Vec::zero(), Vec::zero(), Vec::zero()};
    for (; i + kStep <= until; i += kStep) {
#pragma GCC unroll 4
      for (int part = 0; part < kParts; ++part) {
        sums[part] = Vec::add(sums[part], each.of(Vec::load(from + i + part * Vec::kWidth)));
      }
    }
    for (; i < until; i += Vec::kWidth) {
      sums[0] = Vec::add(sums[0], each.of(Vec::load(from + i)));
    }
    Vec::store(lanes, Vec::add(Vec::add(sums[0], sums[1]), Vec::add(sums[2], sums[3])));
    double found = total;
    for (const float lane : lanes) {
      found += lane;
    }
    const bool is_finite = found - found == 0;
    total = is_finite ? found : total + sum_one_by_one(from + begin, until - begin, each);
  }
  if (i < count) {
    float rest[Vec::kWidth];
    const auto loaded = Vec::load_part(from + i, count - i);
    Vec::store(rest, loaded);
    Vec::store(lanes, each.of(loaded));
    for (int64_t j = 0; i + j < count; ++j) {
      const bool is_finite = lanes[j] - lanes[j] == 0;
      total += is_finite ? lanes[j] : each.wide(rest[j]);
    }
  }
  return total;
}

template <class T>
AIRGRAPH_ENTRY void run_row_mean(const RowCall& call) {
  for (int64_t row = 0; row < call.rows; ++row) {
    const double total = sum_of(reinterpret_cast<const T*>(call.a + row * call.a_stride), call.count, AsItIs());
    auto* out = reinterpret_cast<T*>(call.out + row * call.out_stride);
    store_part(out, Vec::set(static_cast<float>(total / static_cast<double>(call.count))), 1);
  }
}

// The place of the largest of `count` numbers from `begin` on that is larger than `best`, which it becomes.
template <class T>
AIRGRAPH_SIMD int64_t larger_in(const T* from, int64_t begin, int64_t count, float& best) {
  float lanes[Vec::kWidth];
  Vec::store(lanes, count < Vec::kWidth ? Vec::load_part(from + begin, count) : Vec::load(from + begin));
  int64_t found = -1;
  for (int64_t i = 0; i < count; ++i) {
    // Nothing is larger than what is no number.
    if (best == best && !(lanes[i] <= best)) {
      best = lanes[i];
      found = begin + i;
    }
  }
  return found;
}

template <class T>
AIRGRAPH_ENTRY void run_row_argmax(const RowCall& call) {
  for (int64_t row = 0; row < call.rows; ++row) {
    const auto* a = reinterpret_cast<const T*>(call.a + row * call.a_stride);
    float best;
    {
      float lanes[Vec::kWidth];
      Vec::store(lanes, Vec::load_part(a, 1));
      best = lanes[0];
    }
    int64_t place = 0;
    for (int64_t i = 0; i < call.count; i += Vec::kWidth) {
      const int64_t count = call.count - i < Vec::kWidth ? call.count - i : Vec::kWidth;
      // Seldom true after a few.
      if (count < Vec::kWidth || Vec::any_above(Vec::load(a + i), Vec::set(best))) {
        const int64_t found = larger_in(a, i, count, best);
        place = found < 0 ? place : found;
      }
    }
    *reinterpret_cast<int64_t*>(call.out + row * call.out_stride) = place;
  }
}

template <class Op, Second kSecond>
RowOpFn of_element(Element element) {
  switch (element) {
    case Element::f32:
      return &run_row_op<Op, kSecond, float, float>;
    case Element::bf16:
      return &run_row_op<Op, kSecond, Bf16, Bf16>;
    case Element::f16:
      return &run_row_op<Op, kSecond, F16, F16>;
    default:
      return nullptr;
  }
}

template <class Op>
RowOpFn of_second(Second second, Element element) {
  switch (second) {
    case Second::row:
      return of_element<Op, Second::row>(element);
    case Second::one:
      return of_element<Op, Second::one>(element);
    case Second::number:
      return of_element<Op, Second::number>(element);
    default:
      return nullptr;
  }
}

template <class In>
RowOpFn copy_to(Element out) {
  switch (out) {
    case Element::f32:
      return &run_row_op<CopyOp, Second::none, In, float>;
    case Element::bf16:
      return &run_row_op<CopyOp, Second::none, In, Bf16>;
    case Element::f16:
      return &run_row_op<CopyOp, Second::none, In, F16>;
    default:
      return nullptr;
  }
}

inline RowOpFn copy_entry(Element in, Element out) {
  switch (in) {
    case Element::f32:
      return copy_to<float>(out);
    case Element::bf16:
      return copy_to<Bf16>(out);
    case Element::f16:
      return copy_to<F16>(out);
    default:
      return nullptr;
  }
}

inline RowOpFn mean_entry(Element element) {
  switch (element) {
    case Element::f32:
      return &run_row_mean<float>;
    case Element::bf16:
      return &run_row_mean<Bf16>;
    case Element::f16:
      return &run_row_mean<F16>;
    default:
      return nullptr;
  }
}

inline RowOpFn argmax_entry(Element element) {
  switch (element) {
    case Element::f32:
      return &run_row_argmax<float>;
    case Element::bf16:
      return &run_row_argmax<Bf16>;
    case Element::f16:
      return &run_row_argmax<F16>;
    default:
      return nullptr;
  }
}

inline RowOpFn row_op_entry(RowOp op, Second second, Element in, Element out) {
  if (op == RowOp::copy) {
    return copy_entry(in, out);
  }
  if (in != out) {
    return nullptr;
  }
  switch (op) {
    case RowOp::add:
      return of_second<AddOp>(second, in);
    case RowOp::sub:
      return of_second<SubOp>(second, in);
    case RowOp::mul:
      return of_second<MulOp>(second, in);
    case RowOp::div:
      return of_second<DivOp>(second, in);
    case RowOp::neg:
      return of_element<NegOp, Second::none>(in);
    case RowOp::silu:
      return of_element<SiluOp, Second::none>(in);
    case RowOp::rsqrt:
      return of_element<RsqrtOp, Second::none>(in);
    case RowOp::square:
      return of_element<SquareOp, Second::none>(in);
    case RowOp::relu:
      return of_element<ReluOp, Second::none>(in);
    case RowOp::mean:
      return mean_entry(in);
    default:
      return nullptr;
  }
}
