// aten::_int_mm of few rows.
#include <algorithm>
#include <vector>

#include "../../engine/parallel_loop.h"
#include "int_products.h"
#include "loop_parts.h"
#include "table.h"

namespace airgraph {
namespace {

using own::IntProducts;

constexpr int64_t kMostIntRows = 8;
// Sums of products of 14 bits stay in 31.
constexpr int64_t kMostIntK = int64_t{1} << 16;
// What one part of a loop reads of the matrix.
constexpr int64_t kIntPartBytes = int64_t{64} * 1024;
// Matrices are read at about this.
constexpr int64_t kIntReadPerNs = 16;

struct IntCtx final : Step {
  at::Tensor left, right, out;
  int64_t part_rows;
  own::IntProductsFn run;

  // Of a replay.
  IntProducts products;
};

void run_int_part(const void* context, size_t part, size_t /*thread*/) noexcept {
  const auto& ctx = *static_cast<const IntCtx*>(context);
  const int64_t begin = static_cast<int64_t>(part) * ctx.part_rows;
  IntProducts products = ctx.products;
  products.out += begin;
  ctx.run(products, begin, std::min(ctx.right.size(1), begin + ctx.part_rows));
}

void run_int_products(Step* step) {
  auto& ctx = *static_cast<IntCtx*>(step);
  thread_local std::vector<int16_t> numbers;
  auto& products = ctx.products;
  numbers.assign(static_cast<size_t>(products.rows * products.left_ld), 0);
  const auto* from = ctx.left.const_data_ptr<int8_t>();
  for (int64_t m = 0; m < products.rows; ++m) {
    std::copy_n(from + m * ctx.left.stride(0), products.k, numbers.begin() + m * products.left_ld);
  }
  products.left = numbers.data();
  products.right = ctx.right.const_data_ptr<int8_t>();
  products.out = ctx.out.mutable_data_ptr<int32_t>();
  const int64_t n = ctx.right.size(1);
  const auto parts = static_cast<size_t>(own::parts_of(n, ctx.part_rows));
  ParallelLoop::run(parts, static_cast<size_t>(ctx.part_rows * products.k / kIntReadPerNs), &run_int_part, &ctx);
}

std::optional<PreparedStep> make_int_product(const torch::jit::Stack& args, c10::ArrayRef<at::Tensor> outs) {
  const at::Tensor left = args[0].toTensor();
  const at::Tensor right = args[1].toTensor();
  if (outs.size() != 1 || outs[0].numel() == 0) {
    return std::nullopt;
  }
  const at::Tensor& out = outs[0];
  const int64_t n = right.size(1);
  const int64_t k = left.size(1);
  const bool is_served = left.scalar_type() == at::kChar && right.scalar_type() == at::kChar &&
                         out.scalar_type() == at::kInt && left.size(0) <= kMostIntRows && k > 0 && k <= kMostIntK &&
                         (left.stride(1) == 1 || k == 1) && (right.stride(0) == 1 || k == 1) &&
                         (n == 1 || right.stride(1) >= k) && (n == 1 || out.stride(1) == 1);
  if (!is_served) {
    return std::nullopt;
  }
  auto ctx = std::make_unique<IntCtx>();
  ctx->left = left;
  ctx->right = right;
  ctx->out = out;
  ctx->run = own::int_products();
  const int64_t padded = (k + own::kIntPadding - 1) / own::kIntPadding * own::kIntPadding;
  ctx->products = {nullptr, padded, left.size(0), nullptr, right.stride(1), k, nullptr, out.stride(0)};
  ctx->part_rows = own::turns_of_part(n, kIntPartBytes / k);
  const int64_t parts = own::parts_of(n, ctx->part_rows);
  if (parts > static_cast<int64_t>(ParallelLoop::kMostParts)) {
    return std::nullopt;
  }
  return PreparedStep{&run_int_products, std::move(ctx), Tier::own, parts > 1};
}

const KernelRow int_rows[] = {{"aten::_int_mm", "", &make_int_product}};

}  // namespace

c10::ArrayRef<KernelRow> own_int_products() { return int_rows; }

}  // namespace airgraph
