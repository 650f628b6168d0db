#include <ATen/CPUFunctions.h>

#include "table.h"
#include "typed.h"

namespace airgraph {
namespace {

using namespace typed;

// relu is clamp_min(0) in ATen as well.
at::Tensor& relu_out(at::Tensor& out, const at::Tensor& self) {
  return at::cpu::clamp_min_out(out, self, 0);
}

// A Python number meets a float tensor as a 0-dim double, which TensorIterator casts at every call. Cast it once here:
// float and double kernels compute in their own dtype, so the result is the same bit for bit.
torch::jit::Stack with_numbers_cast(const torch::jit::Stack& args, at::ScalarType dtype) {
  torch::jit::Stack cast = args;
  for (auto& value : cast) {
    if (value.isTensor() && value.toTensor().unsafeGetTensorImpl()->is_wrapped_number()) {
      value = value.toTensor().to(dtype);
    }
  }
  return cast;
}

template <class Fn>
bool all_tensors(const torch::jit::Stack& args, Fn holds) {
  for (const auto& value : args) {
    if (value.isTensor() && !holds(value.toTensor())) {
      return false;
    }
  }
  return true;
}

template <auto Fn>
std::optional<PreparedStep> make_arithmetic(const torch::jit::Stack& args, c10::ArrayRef<at::Tensor> outs) {
  if (outs.size() == 1) {
    const auto dtype = outs[0].scalar_type();
    const bool plain = dtype == at::kFloat || dtype == at::kDouble;
    const auto fits = [dtype](const at::Tensor& t) {
      return t.unsafeGetTensorImpl()->is_wrapped_number() ? !t.is_complex() : t.scalar_type() == dtype;
    };
    if (plain && all_tensors(args, fits)) {
      return Call<Fn>::make(with_numbers_cast(args, dtype), outs);
    }
  }
  return Call<Fn>::make(args, outs);
}

#define ARITHMETIC(op, overload, ...)                                              \
  KernelRow {                                                                      \
    "aten::" #op, overload,                                                        \
        &make_arithmetic<static_cast<at::Tensor& (*)(at::Tensor&, __VA_ARGS__)>(   \
            &at::cpu::op##_out)>                                                   \
  }

#define UNARY(op) AIRGRAPH_OUT(op, "", T)

const KernelRow rows[] = {
    ARITHMETIC(add, "Tensor", T, T, S),
    ARITHMETIC(sub, "Tensor", T, T, S),
    ARITHMETIC(mul, "Tensor", T, T),
    ARITHMETIC(div, "Tensor", T, T),
    ARITHMETIC(maximum, "", T, T),
    ARITHMETIC(minimum, "", T, T),
    AIRGRAPH_OUT(remainder, "Tensor", T, T),
    AIRGRAPH_OUT(fmod, "Tensor", T, T),
    AIRGRAPH_OUT(atan2, "", T, T),
    AIRGRAPH_OUT(pow, "Tensor_Tensor", T, T),
    AIRGRAPH_OUT(pow, "Tensor_Scalar", T, S),
    AIRGRAPH_OUT(pow, "Scalar", S, T),
    AIRGRAPH_OUT(bitwise_and, "Tensor", T, T),
    AIRGRAPH_OUT(bitwise_or, "Tensor", T, T),
    AIRGRAPH_OUT(bitwise_xor, "Tensor", T, T),
    AIRGRAPH_OUT(where, "self", T, T, T),
    AIRGRAPH_OUT(clamp, "", T, OS, OS),
    AIRGRAPH_OUT(clamp_min, "", T, S),
    AIRGRAPH_OUT(clamp_max, "", T, S),
    AIRGRAPH_OUT(addcmul, "", T, T, T, S),
    AIRGRAPH_OUT(addcdiv, "", T, T, T, S),
    AIRGRAPH_OUT(lerp, "Scalar", T, T, S),
    AIRGRAPH_OUT(lerp, "Tensor", T, T, T),
    AIRGRAPH_OUT(gelu, "", T, Str),
    AIRGRAPH_OUT(elu, "", T, S, S, S),
    AIRGRAPH_OUT(leaky_relu, "", T, S),
    AIRGRAPH_OUT(softplus, "", T, S, S),
    AIRGRAPH_OUT(hardtanh, "", T, S, S),
    AIRGRAPH_FN(relu, "", relu_out),
    UNARY(silu),
    UNARY(sigmoid),
    UNARY(tanh),
    UNARY(exp),
    UNARY(exp2),
    UNARY(expm1),
    UNARY(log),
    UNARY(log1p),
    UNARY(log2),
    UNARY(sqrt),
    UNARY(rsqrt),
    UNARY(reciprocal),
    UNARY(neg),
    UNARY(abs),
    UNARY(sign),
    UNARY(sin),
    UNARY(cos),
    UNARY(tan),
    UNARY(atan),
    UNARY(erf),
    UNARY(erfc),
    UNARY(floor),
    UNARY(ceil),
    UNARY(round),
    UNARY(trunc),
    UNARY(mish),
    UNARY(hardswish),
    UNARY(hardsigmoid),
    UNARY(bitwise_not),
    UNARY(logical_not),
};

}  // namespace

c10::ArrayRef<KernelRow> pointwise_kernels() { return rows; }

}  // namespace airgraph
