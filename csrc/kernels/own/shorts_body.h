// Whole numbers of 16 bits, and rests of 16 more, beside each other. Included after a `Whole`:
//   kWidth                        numbers of a vector
//   I, zero()                     sums of 32 bits
//   store(int16_t*, F)            rounds Vec::kWidth floats
//   widen(const int8_t*)          kWidth of them
//   add_products(sum, wide, const int16_t*)
//   as_floats(I)

struct WholeNumbers {
  static constexpr float kLargest = 32767;
  static constexpr float kRestsOfOne = 65534;
  // Two products of 15 and 7 bits make 23; so many vectors stay in 31.
  static constexpr int64_t kMostVectors = 128;

  AIRGRAPH_SIMD static int64_t padded(int64_t k) { return (k + 63) / 64 * 64; }
  AIRGRAPH_SIMD static size_t nbytes(int64_t k) { return 2 * sizeof(int16_t) * static_cast<size_t>(padded(k)); }

  AIRGRAPH_SIMD static void store(char* memory, int64_t k, int64_t i, Vec::F whole, Vec::F rest) {
    auto* numbers = reinterpret_cast<int16_t*>(memory) + i;
    Whole::store(numbers, whole);
    Whole::store(numbers + padded(k), Vec::mul(rest, Vec::set(kRestsOfOne)));
  }
  AIRGRAPH_SIMD static void finish(char* /*memory*/, int64_t /*k*/) {}

  AIRGRAPH_SIMD static Vec::F sum(const char* memory, int64_t count, const int8_t* right) {
    Vec::F found;
    sums_of<1>(memory, count, right, 0, 0, &found);
    return found;
  }

  // Of kPlaces rows, `step` after one another; `ahead` bytes from where it reads it asks for what comes.
  AIRGRAPH_SIMD static void sums(const char* memory, int64_t count, const int8_t* right, int64_t step, int64_t ahead,
                                 Vec::F* found) {
    sums_of<kPlaces>(memory, count, right, step, ahead, found);
  }

 private:
  template <int R>
  AIRGRAPH_SIMD static void sums_of(const char* memory, int64_t count, const int8_t* right, int64_t step, int64_t ahead,
                                    Vec::F* found) {
    constexpr int kVectors = kLine / static_cast<int>(Whole::kWidth);  // of a line of `right`
    const auto* numbers = reinterpret_cast<const int16_t*>(memory);
    const auto* rests = numbers + padded(count);
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      found[r] = Vec::zero();
    }
    for (int64_t k = 0; k < count;) {
      const int64_t until = count - k > kMostVectors * Whole::kWidth ? k + kMostVectors * Whole::kWidth : count;
      Whole::I of_numbers[R];
      Whole::I of_rests[R];
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) {
        of_numbers[r] = of_rests[r] = Whole::zero();
      }
      for (; k + kLine <= until; k += kLine) {
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) {
          const int64_t at = k + v * Whole::kWidth;
#pragma GCC unroll 4
          for (int r = 0; r < R; ++r) {
            if (R > 1 && v == 0) {
              Vec::prefetch(right + r * step + at + ahead);
            }
            const auto wide = Whole::widen(right + r * step + at);
            of_numbers[r] = Whole::add_products(of_numbers[r], wide, numbers + at);
            of_rests[r] = Whole::add_products(of_rests[r], wide, rests + at);
          }
        }
      }
      for (; k < until; k += Whole::kWidth) {
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) {
          const auto wide = part(right + r * step + k, until - k);
          of_numbers[r] = Whole::add_products(of_numbers[r], wide, numbers + k);
          of_rests[r] = Whole::add_products(of_rests[r], wide, rests + k);
        }
      }
      k = until;
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) {
        found[r] = Vec::add(found[r], Vec::fma(Whole::as_floats(of_rests[r]), Vec::set(1 / kRestsOfOne),
                                               Whole::as_floats(of_numbers[r])));
      }
    }
  }

  // The next vector, or what is left where that is less.
  AIRGRAPH_SIMD static Whole::I part(const int8_t* from, int64_t left) {
    if (left >= Whole::kWidth) {
      return Whole::widen(from);
    }
    int8_t end[Whole::kWidth] = {};
    for (int64_t i = 0; i < left; ++i) {
      end[i] = from[i];
    }
    return Whole::widen(end);
  }
};
