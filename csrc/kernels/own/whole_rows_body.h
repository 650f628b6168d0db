// The loops of whole_rows.h over `WholeNumbers`, included as row_products_body.h is:
//   kLargest                      whole number
//   kRestsOfOne                   of what the rests tell apart
//   nbytes(k)                     of a row
//   store(memory, k, i, F whole, F rest)  from number i on; rest: between -0.5 and 0.5
//   finish(memory, k)             once all are stored
//   sum(memory, k, const int8_t* right)  in units of a whole number
//   sums(memory, k, right, step, ahead, F*)  of kPlaces rows, `step` after one another; so many bytes from where it
//   reads
//                                 it asks for what comes

AIRGRAPH_ENTRY bool make_whole(const float* from, int64_t k, float rounding, char* memory, WholeRow& row) {
  auto most = Vec::zero();
  auto sum = Vec::zero();
  for (int64_t i = 0; i < k; i += Vec::kWidth) {
    const auto numbers = k - i < Vec::kWidth ? Vec::load_part(from + i, k - i) : Vec::load(from + i);
    const auto size = Vec::max(numbers, Vec::sub(Vec::zero(), numbers));
    most = Vec::max(most, size);
    sum = Vec::add(sum, size);
  }
  float lanes[2][Vec::kWidth];
  Vec::store(lanes[0], most);
  Vec::store(lanes[1], sum);
  float largest = 0;
  float total = 0;
  for (int64_t i = 0; i < Vec::kWidth; ++i) {
    largest = lanes[0][i] > largest ? lanes[0][i] : largest;
    total += lanes[1][i];
  }
  // A sum with what is no number in it is not less than anything.
  if (!(largest > 1e-30F && total < 1e30F)) {
    return false;
  }
  const float unit = largest / (WholeNumbers::kLargest * WholeNumbers::kRestsOfOne);
  const float others = (total - largest) / static_cast<float>(k > 1 ? k - 1 : 1);
  if (k > 1 && 4 * unit > rounding * others) {
    return false;
  }
  const auto by = Vec::set(WholeNumbers::kLargest / largest);
  for (int64_t i = 0; i < (k + 63) / 64 * 64; i += Vec::kWidth) {
    const int64_t left = k - i > 0 ? k - i : 0;
    const auto numbers = left < Vec::kWidth ? Vec::load_part(from + i, left) : Vec::load(from + i);
    const auto scaled = Vec::mul(numbers, by);
    const auto whole = Vec::round(scaled);
    WholeNumbers::store(memory, k, i, whole, Vec::sub(scaled, whole));
  }
  WholeNumbers::finish(memory, k);
  row = {memory, largest / WholeNumbers::kLargest};
  return true;
}

AIRGRAPH_SIMD void run_whole_places(const RowProducts& p, const WholeRow& row, int64_t begin, int64_t end) {
  const auto* right = static_cast<const int8_t*>(p.right) + begin * p.right_ld;
  for (int64_t i = 0; i < end - begin; ++i, right += p.right_ld) {
    typename Vec::F sums[kPlaces];
    float found[kPlaces];
    WholeNumbers::sums(row.memory, p.k, right, p.place_rows * p.right_ld, Vec::kAhead, sums);
    Vec::sum4(sums, found);
#pragma GCC unroll 4
    for (int place = 0; place < kPlaces; ++place) {
      p.out[place * p.place_outs + i] = found[place] * row.scale;
    }
  }
}

AIRGRAPH_ENTRY void run_whole(const RowProducts& p, const WholeRow& row, int64_t begin, int64_t end) {
  if (p.place_rows != 0) {
    return run_whole_places(p, row, begin, end);
  }
  const auto* right = static_cast<const int8_t*>(p.right) + begin * p.right_ld;
  float* out = p.out;
  for (int64_t n = begin; n < end; n += kBlock, out += kBlock) {
    typename Vec::F four[kBlock];
    float found[kBlock];
#pragma GCC unroll 4
    for (int i = 0; i < kBlock; ++i, right += p.right_ld) {
      four[i] = n + i < end ? WholeNumbers::sum(row.memory, p.k, right) : Vec::zero();
    }
    Vec::sum4(four, found);
    for (int i = 0; i < kBlock && n + i < end; ++i) {
      out[i] = found[i] * row.scale;
    }
  }
}

AIRGRAPH_ENTRY size_t whole_nbytes(int64_t k) { return WholeNumbers::nbytes(k); }

inline const WholeForm& whole_form_entry() {
  static const WholeForm form{&whole_nbytes, &make_whole, &run_whole};
  return form;
}
