// gelu of few numbers, where eager's is oneDNN's: that takes longer to begin than to compute. By ATen's own loop for
// the tanh form; by MKL's erf otherwise, since ATen's own loop is further off than oneDNN's there.
#include <ATen/ops/empty.h>

#include <cmath>

#include "../../internals/kernels.h"
#include "../prepared.h"
#include "table.h"

namespace airgraph {
namespace {

constexpr int64_t kMostActivated = int64_t{1} << 12;

void call_tanh_gelu(at::TensorIterator& operands, const at::Scalar& /*number*/) {
  native::GeluKernel(at::kCPU, operands, native::GeluType::Tanh);
}

struct GeluCtx final : Step {
  at::Tensor out, self, scratch;
  at::TensorIterator erf;  // of the scratch, in place
};

void run_gelu(Step* step) {
  auto& ctx = *static_cast<GeluCtx*>(step);
  const auto* self = static_cast<const float*>(ctx.self.const_data_ptr());
  auto* scratch = static_cast<float*>(ctx.scratch.mutable_data_ptr());
  auto* out = static_cast<float*>(ctx.out.mutable_data_ptr());
  const int64_t count = ctx.scratch.numel();
  for (int64_t i = 0; i < count; ++i) {
    scratch[i] = self[i] * static_cast<float>(M_SQRT1_2);
  }
  native::erf_stub(at::kCPU, ctx.erf);
  for (int64_t i = 0; i < count; ++i) {
    out[i] = self[i] * 0.5F * (1 + scratch[i]);
  }
}

// gelu(self, *, approximate)
std::optional<PreparedStep> make_gelu(const torch::jit::Stack& args, c10::ArrayRef<at::Tensor> outs) {
  const auto& self = args[0].toTensor();
  const auto& approximate = args[1].toStringRef();
  if (outs.size() != 1 || self.scalar_type() != at::kFloat || outs[0].scalar_type() != at::kFloat || self.is_neg() ||
      self.numel() == 0 || self.numel() > kMostActivated) {
    return std::nullopt;
  }
  if (approximate == "tanh") {
    auto made = prepared::make<&call_tanh_gelu>(prepared::Operands<1>(&prepared::unary, outs[0], {self}));
    made.tier = Tier::own;
    made.runs_atens = true;
    return made;
  }
  const bool is_dense = self.is_non_overlapping_and_dense() && self.strides() == outs[0].strides();
  if (approximate != "none" || !is_dense) {
    return std::nullopt;
  }
  auto ctx = std::make_unique<GeluCtx>();
  ctx->out = outs[0];
  ctx->self = self;
  ctx->scratch = at::empty({self.numel()}, self.options());
  ctx->erf = at::TensorIterator::unary_op(ctx->scratch, ctx->scratch);
  return PreparedStep{&run_gelu, std::move(ctx), Tier::own, /*has_parts=*/false, /*runs_atens=*/true};
}

const KernelRow activation_rows[] = {
    {"aten::gelu", "", &make_gelu},
};

}  // namespace

c10::ArrayRef<KernelRow> own_activations() { return activation_rows; }

}  // namespace airgraph
