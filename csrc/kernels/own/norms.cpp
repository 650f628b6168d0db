// LayerNorm and softmax of few numbers, where ATen's take longer to begin.
#include <ATen/Parallel.h>

#include <vector>

#include "../../internals/tensors.h"
#include "elements_of.h"
#include "overlaps.h"
#include "row_norms.h"
#include "table.h"

namespace airgraph {
namespace {

using own::NormCall;
using own::RowNorms;

// ATen shares rows among threads, which these do not: from so many numbers on it is sooner done with several.
int64_t most_normed() { return int64_t{1} << (at::get_num_threads() == 1 ? 15 : 12); }

struct NormCtx final : Step {
  void (*fn)(const NormCall& call);
  NormCall call{};
  at::Tensor in, out, weight, bias, mean, rstd;
  std::vector<float> scratch;
};

const char* read_at(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<const char*>(tensor.const_data_ptr()) : nullptr;
}

char* write_at(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<char*>(tensor.mutable_data_ptr()) : nullptr;
}

void run_norm(Step* step) {
  auto& ctx = *static_cast<NormCtx*>(step);
  ctx.call.in = read_at(ctx.in);
  ctx.call.weight = read_at(ctx.weight);
  ctx.call.bias = read_at(ctx.bias);
  ctx.call.out = write_at(ctx.out);
  ctx.call.mean = write_at(ctx.mean);
  ctx.call.rstd = write_at(ctx.rstd);
  ctx.fn(ctx.call);
}

// Whether a tensor, where there is one, is dense and of the elements that `like` has.
bool is_dense_as(const at::Tensor& tensor, const at::Tensor& like) {
  return !tensor.defined() || (own::holds_floats(tensor) && tensor.is_contiguous() &&
                               tensor.scalar_type() == like.scalar_type() && !own::overlaps_otherwise(like, tensor));
}

// Null where it is not served. count: numbers of a row.
std::unique_ptr<NormCtx> ctx_of(const at::Tensor& in, const at::Tensor& out, int64_t count) {
  if (!own::holds_floats(out) || !out.is_contiguous() || !is_dense_as(in, out) || in.numel() == 0 ||
      in.numel() > most_normed()) {
    return nullptr;
  }
  auto ctx = std::make_unique<NormCtx>();
  ctx->in = in;
  ctx->out = out;
  ctx->call.rows = in.numel() / count;
  ctx->call.count = count;
  return ctx;
}

at::Tensor tensor_or_none(const c10::IValue& value) { return value.isNone() ? at::Tensor() : value.toTensor(); }

// native_layer_norm(input, normalized_shape, weight?, bias?, eps) -> (out, mean, rstd)
std::optional<PreparedStep> make_layer_norm(const torch::jit::Stack& args, c10::ArrayRef<at::Tensor> outs) {
  const auto count = c10::multiply_integers(args[1].toIntVector());
  auto ctx = count == 0 || outs.size() != 3 ? nullptr : ctx_of(args[0].toTensor(), outs[0], count);
  if (ctx == nullptr) {
    return std::nullopt;
  }
  ctx->weight = tensor_or_none(args[2]);
  ctx->bias = tensor_or_none(args[3]);
  ctx->mean = outs[1];
  ctx->rstd = outs[2];
  for (const auto& each : {ctx->weight, ctx->bias, ctx->mean, ctx->rstd}) {
    if (!is_dense_as(each, outs[0])) {
      return std::nullopt;
    }
  }
  ctx->call.eps = args[4].toDouble();
  ctx->fn = own::row_norms(own::element_in(outs[0])).layer_norm;
  return PreparedStep{&run_norm, std::move(ctx), Tier::own};
}

// _softmax(self, dim, half_to_float)
std::optional<PreparedStep> make_softmax(const torch::jit::Stack& args, c10::ArrayRef<at::Tensor> outs) {
  const auto& self = args[0].toTensor();
  const auto dim = args[1].toInt();
  if (outs.size() != 1 || self.dim() == 0 || (dim != -1 && dim != self.dim() - 1) || self.size(-1) == 0) {
    return std::nullopt;
  }
  auto ctx = ctx_of(self, outs[0], self.size(-1));
  if (ctx == nullptr) {
    return std::nullopt;
  }
  ctx->scratch.resize(self.size(-1));
  ctx->call.scratch = ctx->scratch.data();
  ctx->fn = own::row_norms(own::element_in(outs[0])).softmax;
  return PreparedStep{&run_norm, std::move(ctx), Tier::own};
}

const KernelRow norm_rows[] = {
    {"aten::native_layer_norm", "", &make_layer_norm},
    {"aten::_softmax", "", &make_softmax},
};

}  // namespace

c10::ArrayRef<KernelRow> own_norms() { return norm_rows; }

}  // namespace airgraph
