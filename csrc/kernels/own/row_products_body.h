// The loops of row_products.h over one kind of vector. Included once for each instruction set, within a namespace of
// its own, after `AIRGRAPH_SIMD` and `AIRGRAPH_ENTRY` (attributes of the functions here: the instruction set, and that
// all but the entries are inlined) and `Vec`:
//   kWidth                        floats of a vector, at most 16
//   kSums                         vectors of sums that registers hold
//   kAhead                        so many bytes from where it reads a place is asked for what comes; measured
//   F                             a vector
//   zero(), add(a, b), fma(a, b, c)
//   load(const T*)                kWidth elements, as floats
//   load_part(const T*, count)    the first `count` of them, zeros beyond
//   sum4(const F[4], float*)      the four vectors' sums
//   prefetch(const void*)
//   sub(a, b), number_or_zero(a)  zero where `a` is not a number
// No function of the standard library is called here: it would be compiled with these instructions, and may be the one
// that the linker keeps for everybody.

constexpr int kLine = 64;  // bytes of a cache line
// Rows of `right` at a time, which share what is read of `left`.
constexpr int kBlock = 4;
// One row of `left` with rows of so many elements: one at a time, or of each place one. A model that has such is read
// from memory, faster in one stream than by four rows that follow one another. What lies in a cache is read as
// much faster by four, which share `left`; and of short rows, adding up the vector of a sum takes as long as the sum.
constexpr int64_t kLongRow = 512;
// So many products are added up in one after another: a chain as long as a row has a worse sum than BLAS's.
constexpr int64_t kFold = Vec::kWidth >= 8 ? 32 : 8;

// Adds up chains, and apart what rounding loses of the total (Knuth's TwoSum): it grows large, and is added to often.
struct Total {
  typename Vec::F sum;
  typename Vec::F lost;

  // Of the first chain, of which nothing is lost; most rows have no other.
  AIRGRAPH_SIMD static Total of(typename Vec::F chain) { return {chain, Vec::zero()}; }

  AIRGRAPH_SIMD void add(typename Vec::F chain) {
    const auto found = Vec::add(sum, chain);
    const auto added = Vec::sub(found, sum);
    lost = Vec::add(lost, Vec::add(Vec::sub(sum, Vec::sub(found, added)), Vec::sub(chain, added)));
    sum = found;
  }

  // Of numbers that are not finite nothing is known to be lost.
  AIRGRAPH_SIMD typename Vec::F value() const { return Vec::add(sum, Vec::number_or_zero(lost)); }
};

// The next vector, or what is left where that is less: to read a part of a vector takes longer than to read it whole.
template <class T>
AIRGRAPH_SIMD typename Vec::F load_left(const T* from, int64_t left) {
  return left < Vec::kWidth ? Vec::load_part(from, left) : Vec::load(from);
}

// Rows of `right` that are read together: elements from each to the next, floats between their results, and where it is
// asked for what comes, of all at one place or of each.
struct Together {
  int64_t step, outs;
  int64_t ahead, ahead_row, ahead_line;  // in bytes: from the first row, between the rows, between lines

  // That follow one another, and the next R of them as one stream.
  template <class T, int R>
  AIRGRAPH_SIMD static Together in_order(const RowProducts& p) {
    return {p.right_ld, 1, R * p.right_ld * static_cast<int64_t>(sizeof(T)), kLine, int64_t{R} * kLine};
  }
  template <class T>
  AIRGRAPH_SIMD static Together of_places(const RowProducts& p) {
    const int64_t step = p.place_rows * p.right_ld;
    return {step, p.place_outs, Vec::kAhead, step * static_cast<int64_t>(sizeof(T)), kLine};
  }
};

// The sums of M rows of `left` with R rows of `right`, each in kParts vectors: shorter chains, and the better sum.
template <class T, int M, int R>
AIRGRAPH_SIMD void sums_of(const RowProducts& p, const Together& rows, const float* left, const T* right, float* out) {
  constexpr int kParts = M * R >= kBlock ? (2 * M * R <= Vec::kSums && M == 1 ? 2 : 1) : kBlock / (M * R);
  constexpr int kVectors = kLine / static_cast<int>(Vec::kWidth * sizeof(T));  // of a line of `right`
  constexpr int kLoads = kVectors < kParts ? kParts : kVectors;
  constexpr int64_t kStep = kLoads * Vec::kWidth;
  constexpr int64_t kUntilFold = 4 * kFold * kParts / kLoads * kStep;
  Total kept[M][R];
  const char* ahead = reinterpret_cast<const char*>(right) + rows.ahead;
  for (int64_t k = 0; k < p.k || k == 0;) {
    const bool is_first = k == 0;
    const int64_t until = p.k - k > kUntilFold ? k + kUntilFold : p.k;
    typename Vec::F sums[kParts][M][R];
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
#pragma GCC unroll 16
      for (int v = 0; v < kLoads; ++v) {
        const int64_t at = k + v * Vec::kWidth;
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
          if (R > 1 && v % kVectors == 0) {
            Vec::prefetch(ahead + r * rows.ahead_row);
            ahead += r == R - 1 ? rows.ahead_line : 0;
          }
          const auto w = Vec::load(right + r * rows.step + at);
#pragma GCC unroll 8
          for (int m = 0; m < M; ++m) {
            sums[v % kParts][m][r] = Vec::fma(Vec::load(left + m * p.left_ld + at), w, sums[v % kParts][m][r]);
          }
        }
      }
    }
    for (; k < until; k += Vec::kWidth) {
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const auto w = load_left(right + r * rows.step + k, until - k);
#pragma GCC unroll 8
        for (int m = 0; m < M; ++m) {
          sums[0][m][r] = Vec::fma(load_left(left + m * p.left_ld + k, until - k), w, sums[0][m][r]);
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
        if (is_first) {
          kept[m][r] = Total::of(sums[0][m][r]);
        } else {
          kept[m][r].add(sums[0][m][r]);
        }
      }
    }
  }
  typename Vec::F totals[M][R];
#pragma GCC unroll 8
  for (int m = 0; m < M; ++m) {
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      totals[m][r] = p.k <= kUntilFold ? kept[m][r].sum : kept[m][r].value();
    }
  }
  if constexpr (R == kBlock) {
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m) {
      float* const to = out + m * p.out_ld;
      if (rows.outs == 1) {
        Vec::sum4(totals[m], to);
        continue;
      }
      float found[kBlock];
      Vec::sum4(totals[m], found);
#pragma GCC unroll 4
      for (int r = 0; r < kBlock; ++r) {
        to[r * rows.outs] = found[r];
      }
    }
  } else {
    static_assert(R == 1);
#pragma GCC unroll 8
    for (int first = 0; first < M; first += kBlock) {
      typename Vec::F four[kBlock];
      float found[kBlock];
#pragma GCC unroll 8
      for (int i = 0; i < kBlock; ++i) {
        four[i] = first + i < M ? totals[first + i < M ? first + i : 0][0] : Vec::zero();
      }
      Vec::sum4(four, found);
#pragma GCC unroll 8
      for (int i = 0; i < kBlock; ++i) {
        if (first + i < M) {
          out[(first + i) * p.out_ld] = found[i];
        }
      }
    }
  }
}

// In so many sums a row is added up: in few where registers are, so that rows of several places have theirs in them.
constexpr int kRowParts = Vec::kWidth < 8 ? 8 : Vec::kSums / kPlaces < 4 ? Vec::kSums / kPlaces : 4;

// The sums of one row of `left` with R rows of `right`, `step` elements after one another, each still in one vector.
// ahead: so many bytes from where it reads of each row it asks for what comes; 0: it does not.
template <class T, int R>
AIRGRAPH_SIMD void row_sums(const RowProducts& p, const float* left, const T* right, int64_t step, int64_t ahead,
                            typename Vec::F* found) {
  constexpr int kVectors = kLine / static_cast<int>(Vec::kWidth * sizeof(T));
  constexpr int kParts = kRowParts;
  constexpr int kLoads = kVectors < kParts ? kParts : kVectors;
  constexpr int64_t kStep = kLoads * Vec::kWidth;
  constexpr int64_t kUntilFold = kFold * kParts / kLoads * kStep;
  Total totals[R];
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
    totals[r] = Total::of(Vec::zero());
  }
  for (int64_t k = 0; k < p.k;) {
    const bool is_first = k == 0;
    const int64_t until = p.k - k > kUntilFold ? k + kUntilFold : p.k;
    typename Vec::F sums[R][kParts];
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
      for (int part = 0; part < kParts; ++part) {
        sums[r][part] = Vec::zero();
      }
    }
    for (; k + kStep <= until; k += kStep) {
#pragma GCC unroll 16
      for (int v = 0; v < kLoads; ++v) {
        const auto numbers = Vec::load(left + k + v * Vec::kWidth);
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) {
          const T* at = right + r * step + k + v * Vec::kWidth;
          if (R > 1 && v % kVectors == 0) {
            Vec::prefetch(reinterpret_cast<const char*>(at) + ahead);
          }
          sums[r][v % kParts] = Vec::fma(numbers, Vec::load(at), sums[r][v % kParts]);
        }
      }
    }
    for (; k < until; k += Vec::kWidth) {
      const auto numbers = load_left(left + k, until - k);
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) {
        sums[r][0] = Vec::fma(numbers, load_left(right + r * step + k, until - k), sums[r][0]);
      }
    }
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
      for (int half = kParts / 2; half > 0; half /= 2) {
#pragma GCC unroll 8
        for (int part = 0; part < half; ++part) {
          sums[r][part] = Vec::add(sums[r][part], sums[r][part + half]);
        }
      }
      if (is_first) {
        totals[r] = Total::of(sums[r][0]);
      } else {
        totals[r].add(sums[r][0]);
      }
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
    found[r] = totals[r].value();
  }
}

// The rows [begin, end) of each place.
template <class T>
AIRGRAPH_SIMD void pass_places(const RowProducts& p, int64_t begin, int64_t end) {
  static_assert(kPlaces == kBlock && (Vec::kWidth < 8 || kPlaces * kRowParts <= Vec::kSums));
  const auto* left = static_cast<const float*>(p.left);
  const T* right = static_cast<const T*>(p.right) + begin * p.right_ld;
  for (int64_t i = 0; i < end - begin; ++i, right += p.right_ld) {
    typename Vec::F sums[kPlaces];
    float found[kPlaces];
    row_sums<T, kPlaces>(p, left, right, p.place_rows * p.right_ld, Vec::kAhead, sums);
    Vec::sum4(sums, found);
#pragma GCC unroll 4
    for (int place = 0; place < kPlaces; ++place) {
      p.out[place * p.place_outs + i] = found[place];
    }
  }
}

// The rows [begin, end) of `right`, one after the other as one stream; four are added up together.
template <class T>
AIRGRAPH_SIMD void pass_one(const RowProducts& p, int64_t begin, int64_t end) {
  const auto* left = static_cast<const float*>(p.left);
  const T* right = static_cast<const T*>(p.right) + begin * p.right_ld;
  float* out = p.out;
  int64_t n = begin;
  for (; n + kBlock <= end; n += kBlock, out += kBlock) {
    typename Vec::F four[kBlock];
#pragma GCC unroll 4
    for (int i = 0; i < kBlock; ++i, right += p.right_ld) {
      row_sums<T, 1>(p, left, right, 0, 0, &four[i]);
    }
    Vec::sum4(four, out);
  }
  if (n < end) {
    typename Vec::F four[kBlock];
    float found[kBlock];
#pragma GCC unroll 4
    for (int i = 0; i < kBlock; ++i, right += p.right_ld) {
      if (n + i < end) {
        row_sums<T, 1>(p, left, right, 0, 0, &four[i]);
      } else {
        four[i] = Vec::zero();
      }
    }
    Vec::sum4(four, found);
    for (int i = 0; n + i < end; ++i) {
      out[i] = found[i];
    }
  }
}

// The rows [begin, end) of `right` or of each place, kBlock at a time, with M rows of `left` from `m` on.
template <class T, int M>
AIRGRAPH_SIMD void pass(const RowProducts& p, int64_t m, int64_t begin, int64_t end) {
  const T* right = static_cast<const T*>(p.right);
  float* out = p.out + m * p.out_ld;
  const float* left = static_cast<const float*>(p.left) + m * p.left_ld;
  const bool has_places = p.place_rows != 0;
  const auto rows = has_places ? Together::of_places<T>(p) : Together::in_order<T, kBlock>(p);
  const int64_t turn = has_places ? 1 : kBlock;
  int64_t n = begin;
  for (; n + turn <= end; n += turn) {
    sums_of<T, M, kBlock>(p, rows, left, right + n * p.right_ld, out + (n - begin));
  }
  for (; n < end; ++n) {
    sums_of<T, M, 1>(p, rows, left, right + n * p.right_ld, out + (n - begin));
  }
}

template <class T>
AIRGRAPH_ENTRY void run(const RowProducts& p, int64_t begin, int64_t end) {
  constexpr int kMost = Vec::kSums / kBlock;  // rows of `left` in one pass
  if (p.rows == 1 && p.k >= kLongRow) {
    if (p.place_rows == 0) {
      return pass_one<T>(p, begin, end);
    }
    if constexpr (Vec::kWidth >= 8) {
      return pass_places<T>(p, begin, end);
    }
    for (int place = 0; place < kPlaces; ++place) {
      const auto one = place_of(p, place, sizeof(T));
      pass_one<T>(one, begin, end);
    }
    return;
  }
  int64_t m = 0;
  for (; p.rows - m >= kMost; m += kMost) {
    pass<T, kMost>(p, m, begin, end);
  }
  switch (p.rows - m) {
    case 3:
      return pass < T, kMost<3 ? kMost : 3>(p, m, begin, end);
    case 2:
      return pass < T, kMost<2 ? kMost : 2>(p, m, begin, end);
    case 1:
      return pass<T, 1>(p, m, begin, end);
    default:
      return;
  }
}

inline RowProductsFn entry(Element element) {
  switch (element) {
    case Element::f32:
      return &run<float>;
    case Element::bf16:
      return &run<Bf16>;
    case Element::f16:
      return &run<F16>;
    case Element::i8:
      return &run<int8_t>;
  }
  return nullptr;
}
