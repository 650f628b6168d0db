#include <ATen/CPUFunctions.h>
#include <ATen/ops/scalar_tensor.h>

#include "../internals/kernels.h"
#include "prepared.h"
#include "table.h"
#include "typed.h"

namespace airgraph {
namespace {

using namespace typed;

struct MeanCtx final : Step {
  prepared::Operands<1> sum;
  prepared::Operands<2> division;
  MeanCtx(const at::Tensor& out, const at::Tensor& kept, const at::Tensor& self, const at::Tensor& count)
      : sum(&prepared::reduction, kept, {self}), division(&prepared::binary, out, {out, count}) {}
};

void run_mean(Step* step) {
  auto& ctx = *static_cast<MeanCtx*>(step);
  native::sum_stub(at::kCPU, ctx.sum.iterator());
  native::div_true_stub(at::kCPU, ctx.division.iterator());
}

// `out` with the reduced dimensions of `self` kept, of size 1 and stride 0 as ATen's reductions have them.
at::Tensor with_kept_dims(const at::Tensor& out, const at::Tensor& self, at::OptionalIntArrayRef dims, bool keepdim) {
  const auto reduced = native::make_dim_mask(dims, self.dim());
  at::DimVector sizes;
  at::DimVector strides;
  int64_t position = 0;
  for (int64_t dim = 0; dim < self.dim(); ++dim) {
    sizes.push_back(reduced[dim] ? 1 : out.size(position));
    strides.push_back(reduced[dim] ? 0 : out.stride(position));
    position += keepdim || !reduced[dim] ? 1 : 0;
  }
  return out.as_strided(sizes, strides);
}

// ATen's mean on CPU is a sum and a division too, but both through the dispatcher.
std::optional<PreparedStep> make_mean(const torch::jit::Stack& args, c10::ArrayRef<at::Tensor> outs) {
  const auto& self = args[0].toTensor();
  const auto& out = outs[0];
  const auto dtype = self.scalar_type();
  const bool plain = (dtype == at::kFloat || dtype == at::kDouble) && out.scalar_type() == dtype && self.numel() != 0 &&
                     self.dim() > 0;
  if (!plain) {
    return Call<static_cast<at::Tensor& (*)(at::Tensor&, T, OInts, B, Dtype)>(&at::cpu::mean_out)>::make(args, outs);
  }
  const Held<OInts> dims(args[1]);
  const auto kept = with_kept_dims(out, self, dims.get(), args[2].toBool());
  const auto count =
      at::scalar_tensor(static_cast<double>(self.numel()) / static_cast<double>(out.numel()), out.options());
  return PreparedStep{&run_mean, std::make_unique<MeanCtx>(out, kept, self, count), Tier::prepared};
}

const KernelRow reduction_rows[] = {
    AIRGRAPH_OUT(sum, "dim_IntList", T, OInts, B, Dtype),
    {"aten::mean", "dim", &make_mean},
    AIRGRAPH_OUT(prod, "dim_int", T, I, B, Dtype),
    AIRGRAPH_OUT(amax, "", T, Ints, B),
    AIRGRAPH_OUT(amin, "", T, Ints, B),
    AIRGRAPH_OUT(argmax, "", T, std::optional<int64_t>, B),
    AIRGRAPH_OUT(argmin, "", T, std::optional<int64_t>, B),
    AIRGRAPH_OUT(any, "", T),
    AIRGRAPH_OUT(any, "dim", T, I, B),
    AIRGRAPH_OUT(all, "", T),
    AIRGRAPH_OUT(all, "dim", T, I, B),
    AIRGRAPH_OUT(cumsum, "", T, I, Dtype),
    AIRGRAPH_OUT(cumprod, "", T, I, Dtype),
    AIRGRAPH_OUT(_softmax, "", T, I, B),
    AIRGRAPH_OUT(_log_softmax, "", T, I, B),
    AIRGRAPH_OUT2(max, "dim", T, I, B),
    AIRGRAPH_OUT2(min, "dim", T, I, B),
    AIRGRAPH_OUT2(topk, "", T, I, I, B, B),
};

}  // namespace

c10::ArrayRef<KernelRow> reduction_kernels() { return reduction_rows; }

}  // namespace airgraph
