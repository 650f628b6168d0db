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
    const auto* numbers = reinterpret_cast<const int16_t*>(memory);
    const auto* rests = numbers + padded(count);
    auto total = Vec::zero();
    for (int64_t k = 0; k < count;) {
      const int64_t until = count - k > kMostVectors * Whole::kWidth ? k + kMostVectors * Whole::kWidth : count;
      auto of_numbers = Whole::zero();
      auto of_rests = Whole::zero();
      for (; k + Whole::kWidth <= until; k += Whole::kWidth) {
        const auto wide = Whole::widen(right + k);
        of_numbers = Whole::add_products(of_numbers, wide, numbers + k);
        of_rests = Whole::add_products(of_rests, wide, rests + k);
      }
      if (k < until) {
        int8_t end[Whole::kWidth] = {};
        for (int64_t i = 0; k + i < until; ++i) {
          end[i] = right[k + i];
        }
        const auto wide = Whole::widen(end);
        of_numbers = Whole::add_products(of_numbers, wide, numbers + k);
        of_rests = Whole::add_products(of_rests, wide, rests + k);
        k = until;
      }
      total = Vec::add(total,
                       Vec::fma(Whole::as_floats(of_rests), Vec::set(1 / kRestsOfOne), Whole::as_floats(of_numbers)));
    }
    return total;
  }
};
