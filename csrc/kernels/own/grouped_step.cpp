// airgraph::grouped_mm of few rows.
#include <algorithm>
#include <vector>

#include "../../engine/parallel_loop.h"
#include "float_rows.h"
#include "grouped_products.h"
#include "loop_parts.h"
#include "table.h"

namespace airgraph {
namespace {

using own::GroupedProducts;

constexpr int64_t kMostGroupedRows = 8;
constexpr int64_t kMostGroups = 1024;
// What one part of a loop reads of the matrix.
constexpr int64_t kGroupedPartBytes = int64_t{32} * 1024;
// Matrices are read at about this.
constexpr int64_t kGroupedReadPerNs = 10;
// Rows of the matrix whose results are summed apart before they are rounded.
constexpr int64_t kGroupedApart = 64;

struct GroupedCtx final : Step {
  Rows out, left, bias;           // bias: expanded as out, or undefined
  at::Tensor right, scale, zero;  // [n, k], [n, groups], the same or undefined
  const own::RowForms* scale_forms;
  int64_t rows, n, k, groups;
  int64_t part_rows;
  own::GroupedFn run;

  // Of a replay.
  const float* left_data;
  int64_t left_ld;
};

void run_grouped_part(const void* context, size_t part, size_t /*thread*/) noexcept {
  const auto& ctx = *static_cast<const GroupedCtx*>(context);
  const int64_t begin = static_cast<int64_t>(part) * ctx.part_rows;
  const int64_t end = std::min(ctx.n, begin + ctx.part_rows);
  const auto* scales_at = static_cast<const char*>(ctx.scale.const_data_ptr());
  const auto scales_step = ctx.groups * static_cast<int64_t>(ctx.scale.element_size());
  const auto* zeros_at = ctx.zero.defined() ? ctx.zero.const_data_ptr<int8_t>() : nullptr;
  float scales[kMostGroups];
  float sums[kMostGroupedRows * kGroupedApart];
  float biases[kGroupedApart];
  GroupedProducts products{ctx.left_data,      ctx.left_ld, ctx.rows, nullptr, ctx.k,
                           ctx.k / ctx.groups, scales,      nullptr,  nullptr, kGroupedApart};
  for (int64_t from = begin; from < end; from += kGroupedApart) {
    const int64_t count = std::min(end - from, kGroupedApart);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t row = from + i;
      ctx.scale_forms->read(scales_at + row * scales_step, ctx.groups, scales);
      products.zeros = zeros_at == nullptr ? nullptr : zeros_at + row * ctx.groups;
      products.right = ctx.right.const_data_ptr<int8_t>() + row * ctx.k;
      products.out = sums + i;
      ctx.run(products);
    }
    const float* bias = ctx.bias.defined() ? ctx.bias.read(0, 0, from, count, biases) : nullptr;
    for (int64_t m = 0; m < ctx.rows; ++m) {
      ctx.out.write(0, m, from, count, sums + m * kGroupedApart, nullptr, bias);
    }
  }
}

void run_grouped(Step* step) {
  auto& ctx = *static_cast<GroupedCtx*>(step);
  thread_local std::vector<float> floats;
  ctx.out.find_to_write();
  ctx.left.find_to_read();
  ctx.bias.find_to_read();
  floats.resize(static_cast<size_t>(ctx.rows * ctx.k));
  for (int64_t row = 0; row < ctx.rows; ++row) {
    float* to = floats.data() + row * ctx.k;
    const float* found = ctx.left.read(0, row, 0, ctx.k, to);
    if (found != to) {
      std::copy_n(found, ctx.k, to);
    }
  }
  ctx.left_data = floats.data();
  ctx.left_ld = ctx.k;
  const auto parts = static_cast<size_t>(own::parts_of(ctx.n, ctx.part_rows));
  ParallelLoop::run(parts, static_cast<size_t>(ctx.part_rows * ctx.k / kGroupedReadPerNs), &run_grouped_part, &ctx);
}

std::optional<PreparedStep> make_grouped(const torch::jit::Stack& args, c10::ArrayRef<at::Tensor> outs) {
  const at::Tensor left = args[0].toTensor();
  const at::Tensor right = args[1].toTensor();
  const at::Tensor scale = args[2].toTensor();
  const auto zero = args[3].toOptional<at::Tensor>().value_or(at::Tensor());
  const auto bias = args[4].toOptional<at::Tensor>().value_or(at::Tensor());
  const at::Tensor& out = outs[0];
  const auto is_float = [](const at::Tensor& each) {
    return own::element_of(each.scalar_type()) && each.scalar_type() != at::kChar;
  };
  const bool is_served = is_float(left) && out.scalar_type() == left.scalar_type() && is_float(scale) &&
                         right.scalar_type() == at::kChar && (!zero.defined() || zero.scalar_type() == at::kChar) &&
                         (!bias.defined() || bias.scalar_type() == out.scalar_type());
  if (!is_served || out.numel() == 0 || left.size(1) == 0 || left.size(0) > kMostGroupedRows ||
      scale.size(1) > kMostGroups || !right.is_contiguous() || !scale.is_contiguous() ||
      (zero.defined() && !zero.is_contiguous())) {
    return std::nullopt;
  }
  auto ctx = std::make_unique<GroupedCtx>();
  ctx->out = Rows(out);
  ctx->left = Rows(left);
  ctx->right = right;
  ctx->scale = scale;
  ctx->zero = zero;
  if (bias.defined()) {
    ctx->bias = Rows(bias.expand_as(out));
  }
  ctx->scale_forms = &own::row_forms(own::element_in(scale));
  ctx->rows = left.size(0);
  ctx->k = left.size(1);
  ctx->n = right.size(0);
  ctx->groups = scale.size(1);
  ctx->run = own::grouped_products();
  ctx->part_rows = own::turns_of_part(ctx->n, kGroupedPartBytes / ctx->k);
  const int64_t parts = own::parts_of(ctx->n, ctx->part_rows);
  if (parts > static_cast<int64_t>(ParallelLoop::kMostParts)) {
    return std::nullopt;
  }
  return PreparedStep{&run_grouped, std::move(ctx), Tier::own, parts > 1};
}

const KernelRow grouped_rows[] = {{"airgraph::grouped_mm", "", &make_grouped}};

}  // namespace

c10::ArrayRef<KernelRow> own_grouped_products() { return grouped_rows; }

}  // namespace airgraph
