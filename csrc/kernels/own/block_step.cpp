#include "block_step.h"

#include <ATen/ExpandUtils.h>

#include <algorithm>

#include "../../engine/parallel_loop.h"
#include "block_products.h"
#include "loop_parts.h"

namespace airgraph {
namespace {

using own::BlockForm;
using own::BlockProducts;
using own::parts_of;

// Numbers of a block of rows, which lie in the second cache while all panels pass by.
constexpr int64_t kBlockNumbers = int64_t{96} * 1024;
constexpr int64_t kFewestBlockRows = 64;
// Multiplications with additions, about, and what a part of a loop should have of them.
constexpr int64_t kProductsPerNs = 32;
constexpr int64_t kPartProducts = 20000 * kProductsPerNs;

struct BlockCtx final : Step {
  at::Tensor left, right, bias, out;
  std::shared_ptr<PackedWeight> packed;
  const BlockForm* form;
  int64_t batch, rows, panels;
  int64_t block_rows, blocks;    // of one matrix
  int64_t group_panels, groups;  // of one matrix
  int64_t left_step, right_step, out_step;

  // Of the first matrix, and of a replay.
  BlockProducts products;
};

void run_block_part(const void* context, size_t part, size_t /*thread*/) noexcept {
  const auto& ctx = *static_cast<const BlockCtx*>(context);
  const auto number = static_cast<int64_t>(part);
  const int64_t group = number % ctx.groups;
  const int64_t block = number / ctx.groups % ctx.blocks;
  const int64_t matrix = number / ctx.groups / ctx.blocks;
  BlockProducts products = ctx.products;
  products.left += matrix * ctx.left_step;
  products.right += matrix * ctx.right_step;
  products.out += matrix * ctx.out_step;
  const int64_t row = block * ctx.block_rows;
  const int64_t panel = group * ctx.group_panels;
  ctx.form->run(products, row, std::min(ctx.rows, row + ctx.block_rows), panel,
                std::min(ctx.panels, panel + ctx.group_panels));
}

void run_block_products(Step* step) {
  auto& ctx = *static_cast<BlockCtx*>(step);
  auto& products = ctx.products;
  products.left = ctx.left.const_data_ptr<float>();
  products.right = ctx.right.const_data_ptr<float>();
  products.panels = ctx.packed == nullptr ? nullptr : ctx.packed->panels();
  products.bias = ctx.bias.defined() ? ctx.bias.const_data_ptr<float>() : nullptr;
  products.out = ctx.out.mutable_data_ptr<float>();
  const auto parts = static_cast<size_t>(ctx.batch * ctx.blocks * ctx.groups);
  const int64_t part_products = std::min(ctx.rows, ctx.block_rows) * ctx.group_panels * ctx.form->width * products.k;
  ParallelLoop::run(parts, static_cast<size_t>(part_products / kProductsPerNs), &run_block_part, &ctx);
}

// Whether the numbers of each row follow one another, and rows lie apart.
bool has_dense_rows(const at::Tensor& tensor) {
  return (tensor.size(-1) == 1 || tensor.stride(-1) == 1) &&
         (tensor.size(-2) == 1 || tensor.stride(-2) >= tensor.size(-1));
}

bool is_row(const at::Tensor& bias, int64_t n) {
  return bias.dim() >= 1 && bias.numel() == n && bias.size(-1) == n && (n == 1 || bias.stride(-1) == 1);
}

// Splits a matrix so that parts are of about one length, and as many for each thread.
void split(BlockCtx& ctx, int64_t k) {
  const int64_t most = std::clamp(kBlockNumbers / k, kFewestBlockRows, own::kMostBlockRows);
  ctx.blocks = parts_of(ctx.rows, most);
  ctx.block_rows = parts_of(ctx.rows, ctx.blocks);
  ctx.blocks = parts_of(ctx.rows, ctx.block_rows);
  ctx.panels = parts_of(ctx.products.n, ctx.form->width);
  const int64_t panel_products = ctx.block_rows * ctx.form->width * k;
  ctx.group_panels = own::turns_of_part(ctx.panels, kPartProducts / panel_products);
  ctx.groups = parts_of(ctx.panels, ctx.group_panels);
}

}  // namespace

std::optional<PreparedStep> make_block_products(const at::Tensor& left, const at::Tensor& right, const at::Tensor& bias,
                                                const at::Tensor& out, std::shared_ptr<PackedWeight> packed) {
  const int64_t dim = out.dim();
  if ((dim != 2 && dim != 3) || left.dim() != dim || right.dim() != dim || out.numel() == 0 || left.size(-1) == 0) {
    return std::nullopt;
  }
  for (const auto* each : {&left, &right, &bias, &out}) {
    if (each->defined() && each->scalar_type() != at::kFloat) {
      return std::nullopt;
    }
  }
  const int64_t batch = dim == 2 ? 1 : out.size(0);
  const bool is_one_batch = dim == 2 || (left.size(0) == batch && right.size(0) == batch);
  if (!is_one_batch || !has_dense_rows(left) || !has_dense_rows(out) ||
      (bias.defined() && !is_row(bias, out.size(-1)))) {
    return std::nullopt;
  }
  auto ctx = std::make_unique<BlockCtx>();
  ctx->left = left;
  ctx->right = right;
  ctx->bias = bias;
  ctx->out = out;
  ctx->packed = std::move(packed);
  ctx->form = &own::block_form();
  ctx->batch = batch;
  ctx->rows = out.size(-2);
  ctx->left_step = dim == 2 ? 0 : left.stride(0);
  ctx->right_step = dim == 2 ? 0 : right.stride(0);
  ctx->out_step = dim == 2 ? 0 : out.stride(0);
  ctx->products = {nullptr,          left.stride(-2), out.size(-1), left.size(-1), nullptr,       right.stride(-2),
                   right.stride(-1), nullptr,         nullptr,      nullptr,       out.stride(-2)};
  split(*ctx, left.size(-1));
  const int64_t parts = batch * ctx->blocks * ctx->groups;
  if (parts > static_cast<int64_t>(ParallelLoop::kMostParts)) {
    return std::nullopt;
  }
  return PreparedStep{&run_block_products, std::move(ctx), Tier::own, parts > 1};
}

}  // namespace airgraph
