#include <ATen/CPUFunctions.h>
#include <ATen/ops/scalar_tensor.h>

#include "table.h"
#include "typed.h"

namespace airgraph {
namespace {

using namespace typed;

struct MeanCtx final : Step {
  at::Tensor out, self, divisor;
  Held<OInts> dims;
  bool keepdim;
  MeanCtx(const torch::jit::Stack& args, const at::Tensor& slot)
      : out(slot), self(args[0].toTensor()), dims(args[1]), keepdim(args[2].toBool()) {
    divisor = at::scalar_tensor(static_cast<double>(self.numel()) / static_cast<double>(out.numel()),
                                out.options());
  }
};

void run_mean(Step* step) {
  auto& ctx = *static_cast<MeanCtx*>(step);
  at::cpu::sum_out(ctx.out, ctx.self, ctx.dims.get(), ctx.keepdim, std::nullopt);
  at::cpu::div_(ctx.out, ctx.divisor);
}

// ATen's mean on CPU is a sum and a division too, but both through the dispatcher.
std::optional<PreparedStep> make_mean(const torch::jit::Stack& args, c10::ArrayRef<at::Tensor> outs) {
  const auto dtype = args[0].toTensor().scalar_type();
  const bool plain = (dtype == at::kFloat || dtype == at::kDouble) && outs[0].scalar_type() == dtype &&
                     args[0].toTensor().numel() != 0 && outs[0].numel() != 0;
  if (!plain) {
    return Call<static_cast<at::Tensor& (*)(at::Tensor&, T, OInts, B, Dtype)>(&at::cpu::mean_out)>::make(
        args, outs);
  }
  return PreparedStep{&run_mean, std::make_unique<MeanCtx>(args, outs[0])};
}

const KernelRow rows[] = {
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

c10::ArrayRef<KernelRow> reduction_kernels() { return rows; }

}  // namespace airgraph
