// The loops of row_forms.h, included as row_products_body.h is. Beside what that wants, `Vec` has
//   store(T*, a)                  kWidth elements, rounded to the nearest

template <class T>
AIRGRAPH_ENTRY void read_row(const void* from, int64_t count, float* to) {
  const T* elements = static_cast<const T*>(from);
  int64_t i = 0;
  for (; i + Vec::kWidth <= count; i += Vec::kWidth) {
    Vec::store(to + i, Vec::load(elements + i));
  }
  if (i < count) {
    float rest[Vec::kWidth];
    Vec::store(rest, Vec::load_part(elements + i, count - i));
    for (int64_t j = 0; i + j < count; ++j) {
      to[i + j] = rest[j];
    }
  }
}

template <class T>
AIRGRAPH_ENTRY void write_row(const float* sums, const float* scale, const float* bias, int64_t count, void* to) {
  T* elements = static_cast<T*>(to);
  for (int64_t i = 0; i < count; i += Vec::kWidth) {
    const int64_t part = count - i < Vec::kWidth ? count - i : Vec::kWidth;
    const bool is_whole = part == Vec::kWidth;
    auto sum = is_whole ? Vec::load(sums + i) : Vec::load_part(sums + i, part);
    if (scale != nullptr) {
      sum = Vec::mul(sum, is_whole ? Vec::load(scale + i) : Vec::load_part(scale + i, part));
    }
    if (bias != nullptr) {
      sum = Vec::add(sum, is_whole ? Vec::load(bias + i) : Vec::load_part(bias + i, part));
    }
    if (is_whole) {
      Vec::store(elements + i, sum);
    } else {
      T rest[Vec::kWidth];
      Vec::store(rest, sum);
      for (int64_t j = 0; j < part; ++j) {
        elements[i + j] = rest[j];
      }
    }
  }
}

inline const RowForms& forms_entry(Element element) {
  static const RowForms f32{&read_row<float>, &write_row<float>};
  static const RowForms bf16{&read_row<Bf16>, &write_row<Bf16>};
  static const RowForms f16{&read_row<F16>, &write_row<F16>};
  switch (element) {
    case Element::bf16:
      return bf16;
    case Element::f16:
      return f16;
    default:
      return f32;
  }
}
