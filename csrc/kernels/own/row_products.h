// Products of few rows with a matrix that lies in rows of what is summed over, as a Linear's weight does: each row of
// the matrix is read once, from where it lies. A decode step is made of these, and waits for memory in them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace airgraph::own {

// A row of `right` at each of so many places may be read at a time: some processors ask memory for what comes at each
// place by itself, and get more of it so (docs/kernels.md). The longer each goes on, the better: the places are the
// quarters of a matrix.
constexpr int kPlaces = 4;
// Places that are nearer to one another than a page are taken for one; of less than some pages a core's cache has all.
constexpr int64_t kLeastApart = int64_t{4} * 4096;

// How an element of the matrix is stored; all are summed in float32.
enum class Element { f32, bf16, f16, i8 };

// out[m, n] = sum over k of left[m, k] * right[n, k]. A row's elements follow one another; leading dimensions are in
// elements.
struct RowProducts {
  const void* left;  // floats, or elements as the matrix's: as the function wants them
  int64_t left_ld;
  int64_t rows;  // of `left`, at least 1
  const void* right;
  int64_t right_ld;
  int64_t k;
  float* out;
  int64_t out_ld;
  // Of several places: rows of `right` from one to the next, and floats of `out` between their results. 0: of one
  // place.
  int64_t place_rows = 0;
  int64_t place_outs = 0;
};

// What `products` are of one of its places.
inline RowProducts place_of(const RowProducts& products, int64_t place, size_t element_nbytes) {
  RowProducts one = products;
  const int64_t elements = place * products.place_rows * products.right_ld;
  one.right = static_cast<const char*>(products.right) + elements * static_cast<int64_t>(element_nbytes);
  one.out += place * products.place_outs;
  one.place_rows = one.place_outs = 0;
  return one;
}

// Of the rows [begin, end) of `right`, or of each of its places; the result of the first lies at `out`.
using RowProductsFn = void (*)(const RowProducts& products, int64_t begin, int64_t end);

// One for each instruction set; the best one that ATen would use, which ATEN_CPU_CAPABILITY limits. `left` is floats.
RowProductsFn row_products(Element element);
// One that reads `left` as elements of that kind, where that is faster; else null.
RowProductsFn stored_row_products(Element element);

// Whether rows that are read from memory are read at several places: by default where that is known to be faster, which
// is on Intel's processors, and with AVX2 on AMD's. Results are the same bits.
bool reads_several_places();
// As wanted from now on, by products that are prepared then; nothing: by default.
void read_several_places(std::optional<bool> wanted);

// Of which instruction set all kernels of ours are here: "AVX512", "AVX2" or "scalar".
const char* level_name();

// Whether kernels that are chosen from now on may use instructions beyond those that ATen asks for; they may at first.
void use_dots(bool wanted);
// Whether they may, of a level that has any.
bool may_use_dots();

RowProductsFn scalar_row_products(Element element);
// Null where they are not compiled in.
RowProductsFn avx2_row_products(Element element);
RowProductsFn avx512_row_products(Element element);
// Of bf16, stored so.
RowProductsFn avx512_dots_row_products();

}  // namespace airgraph::own
