// mm, addmm, bmm, baddbmm and mixed_mm of few rows with matrices that lie as a Linear's weight does.
#include <ATen/ExpandUtils.h>

#include <algorithm>
#include <vector>

#include "../../engine/parallel_loop.h"
#include "elements_of.h"
#include "row_products.h"
#include "table.h"

namespace airgraph {
namespace {

using own::Element;
using own::element_of;
using own::RowProducts;

// More rows are a matter of arithmetic, and are left to BLAS.
constexpr int64_t kMostRows = 8;
// What one part of a loop reads of a matrix.
constexpr int64_t kPartBytes = int64_t{64} * 1024;
// Matrices are read at about this.
constexpr int64_t kReadPerNs = 16;
// Rows of the matrix whose results are summed apart before they are rounded or the bias is added.
constexpr int64_t kApart = 64;

// Of each matrix of a batch.
struct ProductsCtx final : Step {
  at::Tensor out, left, right;  // [batch, rows, n], [batch, rows, k], [batch, k, n]
  at::Tensor scale, bias;       // as out, or undefined; out = left @ right * scale + bias
  int64_t batch, rows, n, k;
  int64_t part_rows, parts;  // of one matrix
  int64_t part_matrices;     // where a matrix has one part
  size_t all_parts, part_ns;
  size_t row_nbytes;
  at::ScalarType dtype;  // of left, out and bias
  bool reads_in_place, writes_in_place;
  own::RowProductsFn run;

  // Of a replay.
  const char* right_data;
  char* out_data;
  const char* scale_data;
  const char* bias_data;
  const float* left_data;
  int64_t left_ld, left_step;
};

// Where the numbers of a tensor begin for the rows [begin, ...) of a matrix and the first row of `left`.
template <class T>
const T* place_in(const at::Tensor& of, const char* data, int64_t matrix, int64_t begin) {
  return data == nullptr ? nullptr : reinterpret_cast<const T*>(data) + matrix * of.stride(0) + begin * of.stride(2);
}

// So many numbers as floats, `step` apart.
void read_floats(at::ScalarType dtype, const char* from, int64_t step, int64_t count, float* to) {
  const auto read = [&]<class T>(const T* numbers) {
    for (int64_t i = 0; i < count; ++i) {
      to[i] = static_cast<float>(numbers[i * step]);
    }
  };
  switch (dtype) {
    case at::kBFloat16:
      return read(reinterpret_cast<const at::BFloat16*>(from));
    case at::kHalf:
      return read(reinterpret_cast<const at::Half*>(from));
    default:
      return read(reinterpret_cast<const float*>(from));
  }
}

template <class T>
void round_to(ProductsCtx& ctx, const float* sums, int64_t matrix, int64_t begin, int64_t end) {
  T* to = const_cast<T*>(place_in<T>(ctx.out, ctx.out_data, matrix, begin));
  const char* scale = ctx.scale_data;
  if (scale != nullptr) {
    scale +=
        (matrix * ctx.scale.stride(0) + begin * ctx.scale.stride(2)) * static_cast<int64_t>(ctx.scale.element_size());
  }
  float scales[kApart];
  const T* bias = place_in<T>(ctx.bias, ctx.bias_data, matrix, begin);
  const int64_t step = ctx.out.stride(2);
  const int64_t bias_step = bias == nullptr ? 0 : ctx.bias.stride(2);
  for (int64_t m = 0; m < ctx.rows; ++m) {
    if (scale != nullptr && (m == 0 || ctx.scale.stride(1) != 0)) {
      const int64_t row = m * ctx.scale.stride(1) * static_cast<int64_t>(ctx.scale.element_size());
      read_floats(ctx.scale.scalar_type(), scale + row, ctx.scale.stride(2), end - begin, scales);
    }
    for (int64_t i = 0; i < end - begin; ++i) {
      float sum = sums[m * kApart + i];
      sum = scale == nullptr ? sum : sum * scales[i];
      sum = bias == nullptr ? sum : sum + static_cast<float>(bias[i * bias_step]);
      to[i * step] = static_cast<T>(sum);
    }
    to += ctx.out.stride(1);
    bias += bias == nullptr ? 0 : ctx.bias.stride(1);
  }
}

void run_rows(ProductsCtx& ctx, int64_t matrix, int64_t begin, int64_t end) noexcept {
  RowProducts products{ctx.left_data + matrix * ctx.left_step,
                       ctx.left_ld,
                       ctx.rows,
                       ctx.right_data + matrix * ctx.right.stride(0) * static_cast<int64_t>(ctx.right.element_size()),
                       ctx.right.stride(2),
                       ctx.k,
                       nullptr,
                       0};
  if (ctx.writes_in_place) {
    products.out = reinterpret_cast<float*>(ctx.out_data) + matrix * ctx.out.stride(0) + begin;
    products.out_ld = ctx.out.stride(1);
    return ctx.run(products, begin, end);
  }
  alignas(64) float sums[kMostRows * kApart];
  products.out = sums;
  products.out_ld = kApart;
  for (int64_t from = begin; from < end; from += kApart) {
    const int64_t to = std::min(end, from + kApart);
    ctx.run(products, from, to);
    switch (ctx.dtype) {
      case at::kBFloat16:
        round_to<at::BFloat16>(ctx, sums, matrix, from, to);
        break;
      case at::kHalf:
        round_to<at::Half>(ctx, sums, matrix, from, to);
        break;
      default:
        round_to<float>(ctx, sums, matrix, from, to);
    }
  }
}

// Some rows of one matrix, or some small matrices.
void run_products_part(const void* context, size_t part, size_t /*thread*/) noexcept {
  auto& ctx = *const_cast<ProductsCtx*>(static_cast<const ProductsCtx*>(context));
  const auto number = static_cast<int64_t>(part);
  if (ctx.parts > 1) {
    const int64_t begin = number % ctx.parts * ctx.part_rows;
    return run_rows(ctx, number / ctx.parts, begin, std::min(ctx.n, begin + ctx.part_rows));
  }
  const int64_t end = std::min(ctx.batch, (number + 1) * ctx.part_matrices);
  for (int64_t matrix = number * ctx.part_matrices; matrix < end; ++matrix) {
    run_rows(ctx, matrix, 0, ctx.n);
  }
}

template <class T>
void to_floats(const ProductsCtx& ctx, float* to) {
  const T* from = static_cast<const T*>(ctx.left.const_data_ptr());
  const int64_t step = ctx.left.stride(2);
  for (int64_t b = 0; b < ctx.batch; ++b) {
    for (int64_t m = 0; m < ctx.rows; ++m) {
      const T* row = from + b * ctx.left.stride(0) + m * ctx.left.stride(1);
      for (int64_t k = 0; k < ctx.k; ++k) {
        *to++ = static_cast<float>(row[k * step]);
      }
    }
  }
}

void run_products(Step* step) {
  auto& ctx = *static_cast<ProductsCtx*>(step);
  thread_local std::vector<float> floats;
  ctx.out_data = static_cast<char*>(ctx.out.mutable_data_ptr());
  ctx.right_data = static_cast<const char*>(ctx.right.const_data_ptr());
  ctx.scale_data = ctx.scale.defined() ? static_cast<const char*>(ctx.scale.const_data_ptr()) : nullptr;
  ctx.bias_data = ctx.bias.defined() ? static_cast<const char*>(ctx.bias.const_data_ptr()) : nullptr;
  if (ctx.reads_in_place) {
    ctx.left_data = ctx.left.const_data_ptr<float>();
    ctx.left_ld = ctx.left.stride(1);
    ctx.left_step = ctx.left.stride(0);
  } else {
    floats.resize(static_cast<size_t>(ctx.batch * ctx.rows * ctx.k));
    switch (ctx.dtype) {
      case at::kBFloat16:
        to_floats<at::BFloat16>(ctx, floats.data());
        break;
      case at::kHalf:
        to_floats<at::Half>(ctx, floats.data());
        break;
      default:
        to_floats<float>(ctx, floats.data());
    }
    ctx.left_data = floats.data();
    ctx.left_ld = ctx.k;
    ctx.left_step = ctx.rows * ctx.k;
  }
  ParallelLoop::run(ctx.all_parts, ctx.part_ns, &run_products_part, &ctx);
}

// scale, bias: may be undefined.
std::optional<PreparedStep> make(const at::Tensor& left, const at::Tensor& right, const at::Tensor& scale,
                                 const at::Tensor& bias, const at::Tensor& out) {
  const auto dtype = out.scalar_type();
  const auto element = element_of(right.scalar_type());
  const bool is_served = left.scalar_type() == dtype && dtype != at::kChar && element_of(dtype) && element &&
                         (right.scalar_type() == dtype || *element == Element::i8) &&
                         (!bias.defined() || bias.scalar_type() == dtype) &&
                         (!scale.defined() || (element_of(scale.scalar_type()) && scale.scalar_type() != at::kChar));
  if (!is_served || left.dim() != right.dim() || out.dim() != left.dim() || out.numel() == 0 || left.size(-1) == 0 ||
      left.size(-2) > kMostRows) {
    return std::nullopt;
  }
  auto ctx = std::make_unique<ProductsCtx>();
  const auto as_batch = [](const at::Tensor& t) { return t.dim() == 2 ? t.unsqueeze(0) : t; };
  ctx->out = as_batch(out);
  ctx->left = as_batch(left);
  ctx->right = as_batch(right);
  ctx->batch = ctx->out.size(0);
  ctx->rows = ctx->out.size(1);
  ctx->n = ctx->out.size(2);
  ctx->k = ctx->left.size(2);
  const bool lies_in_rows =
      (ctx->right.stride(1) == 1 || ctx->k == 1) && (ctx->n == 1 || ctx->right.stride(2) >= ctx->k);
  if (!lies_in_rows || ctx->left.size(0) != ctx->batch || ctx->right.size(0) != ctx->batch) {
    return std::nullopt;
  }
  if (scale.defined()) {
    ctx->scale = as_batch(scale.expand_as(out));
  }
  if (bias.defined()) {
    ctx->bias = as_batch(bias.expand_as(out));
  }
  ctx->row_nbytes = static_cast<size_t>(ctx->k) * ctx->right.element_size();
  ctx->part_rows = std::clamp<int64_t>(kPartBytes / static_cast<int64_t>(ctx->row_nbytes), 1, ctx->n);
  ctx->part_rows = std::min(ctx->n, (ctx->part_rows + 3) / 4 * 4);
  ctx->parts = (ctx->n + ctx->part_rows - 1) / ctx->part_rows;
  ctx->dtype = dtype;
  ctx->reads_in_place = dtype == at::kFloat && (ctx->left.stride(2) == 1 || ctx->k == 1);
  ctx->writes_in_place =
      dtype == at::kFloat && !scale.defined() && !bias.defined() && (ctx->out.stride(2) == 1 || ctx->n == 1);
  ctx->run = own::row_products(*element);
  const int64_t matrix_nbytes = ctx->n * static_cast<int64_t>(ctx->row_nbytes);
  ctx->part_matrices = ctx->parts > 1 ? 1 : std::clamp<int64_t>(kPartBytes / matrix_nbytes, 1, ctx->batch);
  ctx->all_parts = static_cast<size_t>(ctx->parts > 1 ? ctx->batch * ctx->parts
                                                      : (ctx->batch + ctx->part_matrices - 1) / ctx->part_matrices);
  const auto part_nbytes =
      ctx->parts > 1 ? ctx->part_rows * static_cast<int64_t>(ctx->row_nbytes) : ctx->part_matrices * matrix_nbytes;
  ctx->part_ns = static_cast<size_t>(part_nbytes / kReadPerNs);
  if (ctx->all_parts > ParallelLoop::kMostParts) {
    return std::nullopt;
  }
  const bool has_parts = ctx->all_parts > 1;
  return PreparedStep{&run_products, std::move(ctx), Tier::own, has_parts};
}

bool is_one(const c10::IValue& number) {
  const auto value = number.toScalar();
  return !value.isComplex() && value.toDouble() == 1;
}

// mm, bmm
std::optional<PreparedStep> make_product(const torch::jit::Stack& args, c10::ArrayRef<at::Tensor> outs) {
  if (outs.size() != 1) {
    return std::nullopt;
  }
  return make(args[0].toTensor(), args[1].toTensor(), {}, {}, outs[0]);
}

// addmm, baddbmm
std::optional<PreparedStep> make_sum(const torch::jit::Stack& args, c10::ArrayRef<at::Tensor> outs) {
  if (outs.size() != 1 || !is_one(args[3]) || !is_one(args[4])) {
    return std::nullopt;
  }
  return make(args[1].toTensor(), args[2].toTensor(), {}, args[0].toTensor(), outs[0]);
}

std::optional<PreparedStep> make_mixed(const torch::jit::Stack& args, c10::ArrayRef<at::Tensor> outs) {
  const auto scale = args[2].toOptional<at::Tensor>().value_or(at::Tensor());
  return make(args[0].toTensor(), args[1].toTensor(), scale, {}, outs[0]);
}

const KernelRow product_rows[] = {
    {"aten::mm", "", &make_product},  {"aten::bmm", "", &make_product},        {"aten::addmm", "", &make_sum},
    {"aten::baddbmm", "", &make_sum}, {"airgraph::mixed_mm", "", &make_mixed},
};

}  // namespace

c10::ArrayRef<KernelRow> own_products() { return product_rows; }

}  // namespace airgraph
