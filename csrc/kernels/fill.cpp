// Operators that fill the output slot, some with a copy of a tensor before they write into it.
// ATen has no out-variant of its own for them on CPU, so the generic tiers would allocate.
#include <ATen/CPUFunctions.h>
#include <ATen/Context.h>

#include "../internals/kernels.h"
#include "table.h"
#include "typed.h"

namespace airgraph {
namespace {

using namespace typed;

struct FillCtx final : Step {
  at::Tensor out;
  at::Scalar value;
};

void run_fill(Step* step) {
  auto& ctx = *static_cast<FillCtx*>(step);
  native::fill_(ctx.out, ctx.value);
}

std::optional<PreparedStep> fill_with(const at::Scalar& value, c10::ArrayRef<at::Tensor> outs) {
  auto ctx = std::make_unique<FillCtx>();
  ctx->out = outs[0];
  ctx->value = value;
  return PreparedStep{&run_fill, std::move(ctx)};
}

std::optional<PreparedStep> make_full(const torch::jit::Stack& args, c10::ArrayRef<at::Tensor> outs) {
  return fill_with(args[1].toScalar(), outs);
}

std::optional<PreparedStep> make_zeros(const torch::jit::Stack&, c10::ArrayRef<at::Tensor> outs) {
  return fill_with(0, outs);
}

std::optional<PreparedStep> make_ones(const torch::jit::Stack&, c10::ArrayRef<at::Tensor> outs) {
  return fill_with(1, outs);
}

void run_nothing(Step*) {}

// empty and its relatives promise no values: the slot itself is the result, unless new memory is to be filled.
std::optional<PreparedStep> make_empty(const torch::jit::Stack&, c10::ArrayRef<at::Tensor>) {
  const auto& context = at::globalContext();
  if (context.deterministicAlgorithms() && context.deterministicFillUninitializedMemory()) {
    return std::nullopt;
  }
  return PreparedStep{&run_nothing, std::make_unique<Step>()};
}

// arange(end, ...) with the slot's dtype; the functional form takes dtype, layout, device, pin_memory.
struct ArangeCtx final : Step {
  at::Tensor out;
  at::Scalar start;
  at::Scalar end;
  at::Scalar step;
};

void run_arange(Step* step) {
  auto& ctx = *static_cast<ArangeCtx*>(step);
  at::cpu::arange_out(ctx.out, ctx.start, ctx.end, ctx.step);
}

std::optional<PreparedStep> arange_of(const at::Scalar& start, const at::Scalar& end, const at::Scalar& step,
                                      c10::ArrayRef<at::Tensor> outs) {
  auto ctx = std::make_unique<ArangeCtx>();
  ctx->out = outs[0];
  ctx->start = start;
  ctx->end = end;
  ctx->step = step;
  return PreparedStep{&run_arange, std::move(ctx)};
}

std::optional<PreparedStep> make_scalar(const torch::jit::Stack& args, c10::ArrayRef<at::Tensor> outs) {
  return fill_with(args[0].toScalar(), outs);
}

std::optional<PreparedStep> make_arange(const torch::jit::Stack& args, c10::ArrayRef<at::Tensor> outs) {
  return arange_of(0, args[0].toScalar(), 1, outs);
}

std::optional<PreparedStep> make_arange_start(const torch::jit::Stack& args, c10::ArrayRef<at::Tensor> outs) {
  return arange_of(args[0].toScalar(), args[1].toScalar(), 1, outs);
}

std::optional<PreparedStep> make_arange_step(const torch::jit::Stack& args, c10::ArrayRef<at::Tensor> outs) {
  return arange_of(args[0].toScalar(), args[1].toScalar(), args[2].toScalar(), outs);
}

at::Tensor& masked_fill_scalar_out(at::Tensor& out, const at::Tensor& self, const at::Tensor& mask,
                                   const at::Scalar& value) {
  native::copy_(out, self, false);
  return at::cpu::masked_fill_(out, mask, value);
}

at::Tensor& masked_fill_tensor_out(at::Tensor& out, const at::Tensor& self, const at::Tensor& mask,
                                   const at::Tensor& value) {
  native::copy_(out, self, false);
  return at::cpu::masked_fill_(out, mask, value);
}

// masked_fill broadcasts self to the mask's shape: only the plain case is served here.
template <auto Fn>
std::optional<PreparedStep> make_masked_fill(const torch::jit::Stack& args, c10::ArrayRef<at::Tensor> outs) {
  if (args[0].toTensor().sizes() != outs[0].sizes()) {
    return std::nullopt;
  }
  return Call<Fn>::make(args, outs);
}

const KernelRow fill_rows[] = {
    {"aten::full", "", &make_full},
    {"aten::full_like", "", &make_full},
    {"aten::zeros", "", &make_zeros},
    {"aten::zeros_like", "", &make_zeros},
    {"aten::new_zeros", "", &make_zeros},
    {"aten::ones", "", &make_ones},
    {"aten::ones_like", "", &make_ones},
    {"aten::new_ones", "", &make_ones},
    {"aten::scalar_tensor", "", &make_scalar},
    {"aten::empty", "memory_format", &make_empty},
    {"aten::empty_like", "", &make_empty},
    {"aten::empty_strided", "", &make_empty},
    {"aten::new_empty", "", &make_empty},
    {"aten::new_empty_strided", "", &make_empty},
    {"aten::arange", "", &make_arange},
    {"aten::arange", "start", &make_arange_start},
    {"aten::arange", "start_step", &make_arange_step},
    {"aten::masked_fill", "Scalar", &make_masked_fill<&masked_fill_scalar_out>},
    {"aten::masked_fill", "Tensor", &make_masked_fill<&masked_fill_tensor_out>},
};

}  // namespace

c10::ArrayRef<KernelRow> fill_kernels() { return fill_rows; }

}  // namespace airgraph
