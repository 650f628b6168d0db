#include "row_step.h"

#include <ATen/ExpandUtils.h>

#include <algorithm>
#include <vector>

#include "../../engine/parallel_loop.h"
#include "float_rows.h"
#include "loop_parts.h"
#include "overlaps.h"
#include "row_products.h"
#include "whole_rows.h"

namespace airgraph {
namespace {

using own::Element;
using own::element_of;
using own::RowProducts;

// What one part of a loop reads of a matrix.
constexpr int64_t kPartBytes = int64_t{64} * 1024;
// Matrices are read at about this.
constexpr int64_t kReadPerNs = 16;
// A loop over less is not shared among threads.
constexpr size_t kWorthSharingNs = 2 * kPartBytes / kReadPerNs;
// Rows of the matrix whose results are summed apart before they are rounded or the bias is added.
constexpr int64_t kApart = 64;

// Of each matrix of a batch.
struct ProductsCtx final : SharedStep {
  Rows out, left;    // [batch, rows, n], [batch, rows, k]
  Rows scale, bias;  // as out, or undefined; out = left @ right * scale + bias
  at::Tensor right;  // [batch, k, n], or [k, n]
  int64_t batch, rows, n, k;
  int64_t right_ld, right_stride;  // of a matrix, in bytes
  int64_t place_rows;              // of a place, where the matrix is read at several; else 0
  int64_t turns;                   // rows of the matrix, or of a place
  int64_t part_rows, parts;        // of one matrix
  int64_t part_matrices;           // where a matrix has one part
  size_t all_parts, part_ns;
  int64_t right_nbytes;  // from the first element to the last
  bool reads_in_place, writes_in_place;
  const own::WholeForm* whole_form;  // of the one row of `left`, or null
  float rounding;                    // of a result, relative to its size
  own::RowProductsFn run;

  // Of a replay.
  const char* right_data;
  const char* left_data;
  int64_t left_ld, left_step;  // in elements, in bytes
  own::WholeRow whole_row;
  bool is_whole;

  // Products of the same `left`, which are run with this one.
  std::vector<ProductsCtx*> taken;
  size_t parts_together, ns_together;  // theirs too

  bool take(Step& next) override;
  bool has_parts_together() const override { return !taken.empty() && ns_together >= kWorthSharingNs; }
  void let_go() override { taken.clear(); }

  void find();
  void read_left();
  void read_left_as(const ProductsCtx& other);
  bool has_same_left(const ProductsCtx& other) const;
  bool writes_what_is_used_by(const ProductsCtx& other) const;
  bool may_run_together() const;
};

bool ProductsCtx::has_same_left(const ProductsCtx& other) const {
  return left.is_same(other.left) && batch == other.batch && reads_in_place == other.reads_in_place &&
         whole_form == other.whole_form && (whole_form == nullptr || rounding == other.rounding);
}

bool ProductsCtx::take(Step& next) {
  auto* other = dynamic_cast<ProductsCtx*>(&next);
  if (other == nullptr || !has_same_left(*other)) {
    return false;
  }
  const size_t parts = (taken.empty() ? all_parts : parts_together) + other->all_parts;
  if (parts > ParallelLoop::kMostParts) {
    return false;
  }
  ns_together = (taken.empty() ? all_parts * part_ns : ns_together) + other->all_parts * other->part_ns;
  parts_together = parts;
  taken.push_back(other);
  return true;
}

// Where this replay reads and writes.
void ProductsCtx::find() {
  out.find_to_write();
  for (auto* each : {&left, &scale, &bias}) {
    each->find_to_read();
  }
  right_data = static_cast<const char*>(right.const_data_ptr());
}

bool ProductsCtx::writes_what_is_used_by(const ProductsCtx& other) const {
  const auto written = out.extent();
  return written.meets(other.out.extent()) || written.meets(other.left.extent()) ||
         written.meets({other.right_data, other.right_data + other.right_nbytes}) ||
         written.meets(other.scale.extent()) || written.meets(other.bias.extent());
}

// Asked at each replay: arguments may lie elsewhere at each call.
bool ProductsCtx::may_run_together() const {
  for (size_t i = 0; i < taken.size(); ++i) {
    if (writes_what_is_used_by(*taken[i]) || taken[i]->writes_what_is_used_by(*this)) {
      return false;
    }
    for (size_t j = 0; j < taken.size(); ++j) {
      if (j != i && taken[i]->writes_what_is_used_by(*taken[j])) {
        return false;
      }
    }
  }
  return true;
}

RowProducts products_of(const ProductsCtx& ctx, int64_t matrix) {
  return {ctx.left_data + matrix * ctx.left_step,
          ctx.left_ld,
          ctx.rows,
          ctx.right_data + matrix * ctx.right_stride,
          ctx.right_ld,
          ctx.k,
          nullptr,
          0};
}

void run_products_of(const ProductsCtx& ctx, const RowProducts& products, int64_t begin, int64_t end) noexcept {
  if (ctx.is_whole) {
    ctx.whole_form->run(products, ctx.whole_row, begin, end);
  } else {
    ctx.run(products, begin, end);
  }
}

// The results of `count` rows of the matrix from `from` on.
struct Stretch {
  int64_t matrix, from, count;
};

void prefetch_around(const ProductsCtx& ctx, const Stretch& stretch) noexcept {
  for (const auto* each : {&ctx.scale, &ctx.bias}) {
    if (each->defined()) {
      each->prefetch(stretch.matrix, 0, stretch.from, stretch.count);
    }
  }
}

// sums: kApart after one another for each row of `left`.
void write_sums(const ProductsCtx& ctx, const Stretch& stretch, float* sums) noexcept {
  float scales[kApart];
  float biases[kApart];
  const auto [matrix, from, count] = stretch;
  const float* scale = nullptr;
  const float* bias = nullptr;
  for (int64_t m = 0; m < ctx.rows; ++m) {
    if (ctx.scale.defined() && (m == 0 || !ctx.scale.is_one_row())) {
      scale = ctx.scale.read(matrix, m, from, count, scales);
    }
    if (ctx.bias.defined() && (m == 0 || !ctx.bias.is_one_row())) {
      bias = ctx.bias.read(matrix, m, from, count, biases);
    }
    ctx.out.write(matrix, m, from, count, sums + m * kApart, scale, bias);
  }
}

void run_rows(const ProductsCtx& ctx, int64_t matrix, int64_t begin, int64_t end) noexcept {
  auto products = products_of(ctx, matrix);
  if (ctx.writes_in_place) {
    products.out = reinterpret_cast<float*>(ctx.out.at(matrix, 0, begin));
    products.out_ld = ctx.out.row_stride();
    return run_products_of(ctx, products, begin, end);
  }
  alignas(64) float sums[kMostProductRows * kApart];
  products.out = sums;
  products.out_ld = kApart;
  for (int64_t from = begin; from < end; from += kApart) {
    const Stretch stretch{matrix, from, std::min(end - from, kApart)};
    prefetch_around(ctx, stretch);
    run_products_of(ctx, products, from, from + stretch.count);
    write_sums(ctx, stretch, sums);
  }
}

// The rows [begin, end) of each place.
void run_places(const ProductsCtx& ctx, int64_t matrix, int64_t begin, int64_t end) noexcept {
  auto products = products_of(ctx, matrix);
  products.place_rows = ctx.place_rows;
  if (ctx.writes_in_place) {
    products.out = reinterpret_cast<float*>(ctx.out.at(matrix, 0, begin));
    products.out_ld = ctx.out.row_stride();
    products.place_outs = ctx.place_rows;
    return run_products_of(ctx, products, begin, end);
  }
  alignas(64) float sums[own::kPlaces * kMostProductRows * kApart];
  products.out = sums;
  products.out_ld = kApart;
  products.place_outs = kMostProductRows * kApart;
  for (int64_t from = begin; from < end; from += kApart) {
    const int64_t count = std::min(end - from, kApart);
    for (int64_t place = 0; place < own::kPlaces; ++place) {
      prefetch_around(ctx, {matrix, place * ctx.place_rows + from, count});
    }
    run_products_of(ctx, products, from, from + count);
    for (int64_t place = 0; place < own::kPlaces; ++place) {
      write_sums(ctx, {matrix, place * ctx.place_rows + from, count}, sums + place * kMostProductRows * kApart);
    }
  }
}

void run_part(const ProductsCtx& ctx, int64_t matrix, int64_t begin, int64_t end) noexcept {
  if (ctx.place_rows == 0) {
    return run_rows(ctx, matrix, begin, end);
  }
  run_places(ctx, matrix, begin, end);
  if (end == ctx.place_rows) {
    // What four places do not divide.
    run_rows(ctx, matrix, own::kPlaces * ctx.place_rows, ctx.n);
  }
}

// Some rows of one matrix, or some small matrices.
void run_products_part(const void* context, size_t part, size_t /*thread*/) noexcept {
  const auto& ctx = *static_cast<const ProductsCtx*>(context);
  const auto number = static_cast<int64_t>(part);
  if (ctx.parts > 1) {
    const int64_t begin = number % ctx.parts * ctx.part_rows;
    return run_part(ctx, number / ctx.parts, begin, std::min(ctx.turns, begin + ctx.part_rows));
  }
  const int64_t end = std::min(ctx.batch, (number + 1) * ctx.part_matrices);
  for (int64_t matrix = number * ctx.part_matrices; matrix < end; ++matrix) {
    run_part(ctx, matrix, 0, ctx.turns);
  }
}

// False where the row is not served so.
bool make_whole(ProductsCtx& ctx, const std::vector<float>& row) {
  constexpr size_t kAlignment = 64;
  thread_local std::vector<char> memory;
  memory.resize(ctx.whole_form->nbytes(ctx.k) + kAlignment);
  const auto past = reinterpret_cast<uintptr_t>(memory.data()) % kAlignment;
  return ctx.whole_form->make(row.data(), ctx.k, ctx.rounding, memory.data() + (kAlignment - past), ctx.whole_row);
}

// As the parts want it.
void ProductsCtx::read_left() {
  thread_local std::vector<float> floats;
  if (reads_in_place) {
    left_data = left.at(0, 0, 0);
    left_ld = left.row_stride();
    left_step = left.batch_step();
  } else {
    floats.resize(static_cast<size_t>(batch * rows * k));
    for (int64_t row = 0; row < batch * rows; ++row) {
      float* to = floats.data() + row * k;
      const float* found = left.read(row / rows, row % rows, 0, k, to);
      if (found != to) {
        std::copy_n(found, k, to);
      }
    }
    left_data = reinterpret_cast<const char*>(floats.data());
    left_ld = k;
    left_step = rows * k * static_cast<int64_t>(sizeof(float));
  }
  is_whole = whole_form != nullptr && make_whole(*this, floats);
}

void ProductsCtx::read_left_as(const ProductsCtx& other) {
  left_data = other.left_data;
  left_ld = other.left_ld;
  left_step = other.left_step;
  is_whole = other.is_whole;
  whole_row = other.whole_row;
}

void run_part_of_several(const void* context, size_t part, size_t thread) noexcept {
  const auto* ctx = static_cast<const ProductsCtx*>(context);
  auto next = ctx->taken.begin();
  while (part >= ctx->all_parts) {
    part -= ctx->all_parts;
    ctx = *next++;
  }
  run_products_part(ctx, part, thread);
}

void run_alone(ProductsCtx& ctx) {
  ctx.read_left();
  ParallelLoop::run(ctx.all_parts, ctx.part_ns, &run_products_part, &ctx);
}

void run_products(Step* step) {
  auto& ctx = *static_cast<ProductsCtx*>(step);
  ctx.find();
  for (auto* each : ctx.taken) {
    each->find();
  }
  if (!ctx.has_parts_together() || !ctx.may_run_together()) {
    run_alone(ctx);
    for (auto* each : ctx.taken) {
      run_alone(*each);
    }
    return;
  }
  ctx.read_left();
  for (auto* each : ctx.taken) {
    each->read_left_as(ctx);
  }
  ParallelLoop::run(ctx.parts_together, ctx.ns_together / ctx.parts_together, &run_part_of_several, &ctx);
}

// Where it is read at several places: how many rows each has.
int64_t place_rows_of(const ProductsCtx& ctx) {
  const int64_t rows = ctx.n / own::kPlaces;
  const int64_t apart = rows * ctx.right_ld * static_cast<int64_t>(ctx.right.element_size());
  return own::reads_several_places() && apart >= own::kLeastApart ? rows : 0;
}

bool are_served(const at::Tensor& left, const at::Tensor& right, const at::Tensor& scale, const at::Tensor& bias,
                const at::Tensor& out) {
  const auto dtype = out.scalar_type();
  const auto is_float = [](at::ScalarType each) { return each != at::kChar && element_of(each); };
  const bool has_types = is_float(dtype) && left.scalar_type() == dtype &&
                         (right.scalar_type() == dtype || right.scalar_type() == at::kChar) &&
                         (!bias.defined() || bias.scalar_type() == dtype) &&
                         (!scale.defined() || is_float(scale.scalar_type()));
  if (!has_types || left.dim() != right.dim() || out.dim() != left.dim() || out.numel() == 0 || left.size(-1) == 0 ||
      left.size(-2) > kMostProductRows) {
    return false;
  }
  const bool lies_in_rows =
      (right.stride(-2) == 1 || left.size(-1) == 1) && (out.size(-1) == 1 || right.stride(-1) >= left.size(-1));
  return lies_in_rows && (left.dim() == 2 || (left.size(0) == out.size(0) && right.size(0) == out.size(0)));
}

// Into parts of a loop: some rows of one matrix each, or some small matrices.
void share_out(ProductsCtx& ctx) {
  const bool has_places = ctx.place_rows != 0;
  const auto row_nbytes = ctx.k * static_cast<int64_t>(ctx.right.element_size());
  const int64_t turn_nbytes = row_nbytes * (has_places ? own::kPlaces : 1);
  ctx.turns = has_places ? ctx.place_rows : ctx.n;
  ctx.part_rows = own::turns_of_part(ctx.turns, kPartBytes / turn_nbytes, has_places ? 1 : 4);
  ctx.parts = own::parts_of(ctx.turns, ctx.part_rows);
  if (ctx.parts > 1) {
    ctx.part_matrices = 1;
    ctx.all_parts = static_cast<size_t>(ctx.batch * ctx.parts);
    ctx.part_ns = static_cast<size_t>(ctx.part_rows * turn_nbytes / kReadPerNs);
  } else {
    const int64_t matrix_nbytes = ctx.n * row_nbytes;
    ctx.part_matrices = std::clamp<int64_t>(kPartBytes / matrix_nbytes, 1, ctx.batch);
    ctx.all_parts = static_cast<size_t>((ctx.batch + ctx.part_matrices - 1) / ctx.part_matrices);
    ctx.part_ns = static_cast<size_t>(ctx.part_matrices * matrix_nbytes / kReadPerNs);
  }
}

// The row of `left` in whole numbers, where the matrix is of such: null where it is not read so.
const own::WholeForm* whole_form_of(const ProductsCtx& ctx, at::ScalarType dtype) {
  const bool is_served = ctx.right.scalar_type() == at::kChar && dtype != at::kFloat && ctx.rows == 1 &&
                         ctx.batch == 1 && ctx.k <= own::kMostWhole;
  return is_served ? own::whole_form() : nullptr;
}

}  // namespace

std::optional<PreparedStep> make_row_products(const at::Tensor& left, const at::Tensor& right, const at::Tensor& scale,
                                              const at::Tensor& bias, const at::Tensor& out) {
  const auto element = element_of(right.scalar_type());
  if (!element || !are_served(left, right, scale, bias, out)) {
    return std::nullopt;
  }
  auto ctx = std::make_unique<ProductsCtx>();
  ctx->out = Rows(out);
  ctx->left = Rows(left);
  ctx->right = right;
  ctx->batch = out.dim() == 2 ? 1 : out.size(0);
  ctx->rows = out.size(-2);
  ctx->n = out.size(-1);
  ctx->k = left.size(-1);
  if (scale.defined()) {
    ctx->scale = Rows(scale.expand_as(out));
  }
  if (bias.defined()) {
    ctx->bias = Rows(bias.expand_as(out));
  }
  ctx->right_ld = right.stride(-1);
  ctx->right_stride = right.dim() == 2 ? 0 : right.stride(0) * static_cast<int64_t>(right.element_size());
  ctx->right_nbytes = own::extent_nbytes(right);
  const auto dtype = out.scalar_type();
  const auto stored_run = right.scalar_type() == dtype ? own::stored_row_products(*element) : nullptr;
  ctx->reads_in_place = (dtype == at::kFloat || stored_run != nullptr) && ctx->left.is_dense();
  ctx->writes_in_place = dtype == at::kFloat && !scale.defined() && !bias.defined() && ctx->out.is_dense();
  ctx->whole_form = whole_form_of(*ctx, dtype);
  ctx->rounding = dtype == at::kBFloat16 ? 0x1p-9F : 0x1p-12F;
  const bool reads_stored = stored_run != nullptr && ctx->reads_in_place;
  ctx->run = reads_stored ? stored_run : own::row_products(*element);
  ctx->place_rows = reads_stored ? 0 : place_rows_of(*ctx);
  share_out(*ctx);
  if (ctx->all_parts > ParallelLoop::kMostParts) {
    return std::nullopt;
  }
  const bool has_parts = ctx->all_parts > 1;
  return PreparedStep{&run_products, std::move(ctx), Tier::own, has_parts};
}

}  // namespace airgraph
