// Neural-network operators that ATen offers on CPU only in functional form, served into their slots
// through the same kernels that the functional form calls.
#include <ATen/CPUFunctions.h>

#include "../internals/kernels.h"
#include "table.h"
#include "typed.h"

namespace airgraph {
namespace {

struct LayerNormCtx final : Step {
  at::Tensor out, mean, rstd, input, weight, bias;
  int64_t rows = 0;
  int64_t columns = 0;
  double eps = 0;
};

void run_layer_norm(Step* step) {
  auto& ctx = *static_cast<LayerNormCtx*>(step);
  native::LayerNormKernel(at::kCPU, ctx.input, ctx.weight, ctx.bias, ctx.rows, ctx.columns, ctx.eps, &ctx.out,
                          &ctx.mean, &ctx.rstd);
}

at::Tensor tensor_or_undefined(const c10::IValue& value) { return value.isNone() ? at::Tensor() : value.toTensor(); }

// native_layer_norm(input, normalized_shape, weight?, bias?, eps) -> (out, mean, rstd)
std::optional<PreparedStep> make_layer_norm(const torch::jit::Stack& args, c10::ArrayRef<at::Tensor> outs) {
  auto ctx = std::make_unique<LayerNormCtx>();
  ctx->input = args[0].toTensor();
  const auto normalized = args[1].toIntVector();
  ctx->weight = tensor_or_undefined(args[2]);
  ctx->bias = tensor_or_undefined(args[3]);
  ctx->eps = args[4].toDouble();
  ctx->out = outs[0];
  ctx->mean = outs[1];
  ctx->rstd = outs[2];
  for (const auto& t : {ctx->input, ctx->weight, ctx->bias, ctx->out, ctx->mean, ctx->rstd}) {
    if (t.defined() && !t.is_contiguous()) {
      return std::nullopt;
    }
  }
  const auto plain = ctx->input.scalar_type();
  for (const auto& t : {ctx->weight, ctx->bias, ctx->mean, ctx->rstd}) {
    if (t.defined() && t.scalar_type() != plain) {
      return std::nullopt;
    }
  }
  ctx->columns = c10::multiply_integers(normalized);
  if (ctx->columns == 0 || ctx->input.numel() == 0) {
    return std::nullopt;
  }
  ctx->rows = ctx->input.numel() / ctx->columns;
  return PreparedStep{&run_layer_norm, std::move(ctx)};
}

struct EmbeddingCtx final : Step {
  at::Tensor out_rows, weight, flat_indices;
};

void run_embedding(Step* step) {
  auto& ctx = *static_cast<EmbeddingCtx*>(step);
  at::cpu::index_select_out(ctx.out_rows, ctx.weight, 0, ctx.flat_indices);
}

// embedding(weight, indices, ...): ATen's own CPU implementation is this index_select.
std::optional<PreparedStep> make_embedding(const torch::jit::Stack& args, c10::ArrayRef<at::Tensor> outs) {
  const auto weight = args[0].toTensor();
  const auto indices = args[1].toTensor();
  if (weight.dim() != 2 || !indices.is_contiguous() || !outs[0].is_contiguous()) {
    return std::nullopt;
  }
  auto ctx = std::make_unique<EmbeddingCtx>();
  ctx->weight = weight;
  ctx->flat_indices = indices.view({indices.numel()});
  ctx->out_rows = outs[0].view({indices.numel(), weight.size(1)});
  return PreparedStep{&run_embedding, std::move(ctx)};
}

struct AttentionCtx final : Step {
  at::Tensor out, logsumexp, query, key, value;
  double dropout = 0;
  bool causal = false;
  std::optional<at::Tensor> mask;
  std::optional<double> scale;
};

void run_attention(Step* step) {
  auto& ctx = *static_cast<AttentionCtx*>(step);
  native::flash_attention_kernel(at::kCPU, ctx.out, ctx.logsumexp, ctx.query, ctx.key, ctx.value, ctx.dropout,
                                 ctx.causal, ctx.mask, ctx.scale);
}

// _scaled_dot_product_flash_attention_for_cpu(query, key, value, dropout_p, is_causal, *, attn_mask, scale)
// The kernel takes q, k, v as [batch, heads, length, size], output and logsumexp with length before heads.
std::optional<PreparedStep> make_attention(const torch::jit::Stack& args, c10::ArrayRef<at::Tensor> outs) {
  auto ctx = std::make_unique<AttentionCtx>();
  ctx->query = args[0].toTensor();
  ctx->key = args[1].toTensor();
  ctx->value = args[2].toTensor();
  ctx->dropout = args[3].toDouble();
  ctx->causal = args[4].toBool();
  ctx->mask = args[5].toOptional<at::Tensor>();
  ctx->scale = args[6].toOptional<double>();
  ctx->out = outs[0].transpose(1, 2);
  ctx->logsumexp = outs[1].transpose(1, 2);
  const bool plain = ctx->query.dim() == 4 && ctx->query.numel() != 0 && ctx->key.numel() != 0 &&
                     ctx->out.is_contiguous() && ctx->logsumexp.is_contiguous() && ctx->dropout == 0.0;
  if (!plain) {
    return std::nullopt;
  }
  return PreparedStep{&run_attention, std::move(ctx)};
}

const KernelRow nn_rows[] = {
    {"aten::native_layer_norm", "", &make_layer_norm},
    {"aten::embedding", "", &make_embedding},
    {"aten::_scaled_dot_product_flash_attention_for_cpu", "", &make_attention},
};

}  // namespace

c10::ArrayRef<KernelRow> nn_kernels() { return nn_rows; }

}  // namespace airgraph
