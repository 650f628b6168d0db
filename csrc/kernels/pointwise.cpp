#include <ATen/CPUFunctions.h>

#include <algorithm>

#include "../internals/kernels.h"
#include "../internals/tensors.h"
#include "prepared.h"
#include "table.h"
#include "typed.h"

namespace airgraph {
namespace {

using namespace typed;

// relu is clamp_min(0) in ATen as well.
at::Tensor& relu_out(at::Tensor& out, const at::Tensor& self) { return at::cpu::clamp_min_out(out, self, 0); }

// A Python number meets a float tensor as a 0-dim double, which TensorIterator casts at every call. Cast it once here:
// float and double kernels compute in their own dtype, so the result is the same bit for bit.
torch::jit::Stack with_numbers_cast(const torch::jit::Stack& args, at::ScalarType dtype) {
  torch::jit::Stack cast = args;
  for (auto& value : cast) {
    if (value.isTensor() && is_number(value.toTensor())) {
      value = value.toTensor().to(dtype);
    }
  }
  return cast;
}

bool is_plain_float(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kFloat || tensor.scalar_type() == at::kDouble;
}

// Whether all tensors have `out`'s dtype, float or double; a Python number counts as having it.
bool one_float_dtype(const torch::jit::Stack& args, const at::Tensor& out) {
  return is_plain_float(out) && std::all_of(args.begin(), args.end(), [&out](const c10::IValue& value) {
           if (!value.isTensor()) {
             return true;
           }
           const auto& tensor = value.toTensor();
           return is_number(tensor) ? !tensor.is_complex() : tensor.scalar_type() == out.scalar_type();
         });
}

using prepared::Kernel;
using Iterator = at::TensorIterator;

template <auto& Stub>
void call_stub(Iterator& operands, const at::Scalar& /*number*/) {
  Stub(at::kCPU, operands);
}

void call_add(Iterator& operands, const at::Scalar& alpha) { native::add_stub(at::kCPU, operands, alpha); }
void call_sub(Iterator& operands, const at::Scalar& alpha) { native::add_stub(at::kCPU, operands, -alpha); }
void call_pow(Iterator& operands, const at::Scalar& power) {
  native::pow_tensor_scalar_stub(at::kCPU, operands, power);
}
void call_relu(Iterator& operands, const at::Scalar& /*number*/) {
  native::clamp_min_scalar_stub(at::kCPU, operands, 0);
}

// A binary operator, with or without a number after its two tensors. `Fallback` serves what cannot be prepared.
template <Kernel Fn, auto Fallback>
std::optional<PreparedStep> make_binary(const torch::jit::Stack& args, c10::ArrayRef<at::Tensor> outs) {
  if (outs.size() != 1 || !one_float_dtype(args, outs[0])) {
    return Call<Fallback>::make(args, outs);
  }
  const auto cast = with_numbers_cast(args, outs[0].scalar_type());
  return prepared::make<Fn>(prepared::Operands<2>(&prepared::binary, outs[0], {cast[0].toTensor(), cast[1].toTensor()}),
                            cast.size() > 2 ? cast[2].toScalar() : at::Scalar());
}

template <Kernel Fn, auto Fallback>
std::optional<PreparedStep> make_unary(const torch::jit::Stack& args, c10::ArrayRef<at::Tensor> outs) {
  if (outs.size() != 1 || !one_float_dtype(args, outs[0])) {
    return Call<Fallback>::make(args, outs);
  }
  return prepared::make<Fn>(prepared::Operands<1>(&prepared::unary, outs[0], {args[0].toTensor()}));
}

std::optional<PreparedStep> make_pow(const torch::jit::Stack& args, c10::ArrayRef<at::Tensor> outs) {
  const auto power = args[1].toScalar();
  // ATen fills for 0 and copies for 1.
  const bool plain = outs.size() == 1 && one_float_dtype(args, outs[0]) && !power.isComplex() && !power.equal(0.0) &&
                     !power.equal(1.0) && !power.isBoolean();
  if (!plain) {
    return Call<static_cast<at::Tensor& (*)(at::Tensor&, T, S)>(&at::cpu::pow_out)>::make(args, outs);
  }
  return prepared::make<&call_pow>(prepared::Operands<1>(&prepared::unary, outs[0], {args[0].toTensor()}), power);
}

#define TYPED(op, ...) static_cast<at::Tensor& (*)(at::Tensor&, __VA_ARGS__)>(&at::cpu::op##_out)
#define BINARY(op, overload, kernel, ...) \
  KernelRow { "aten::" #op, overload, &make_binary<&kernel, TYPED(op, __VA_ARGS__)> }
#define STUB_BINARY(op, overload, stub) BINARY(op, overload, call_stub<native::stub>, T, T)
#define UNARY(op) AIRGRAPH_OUT(op, "", T)
#define STUB_UNARY(op) \
  KernelRow { "aten::" #op, "", &make_unary<&call_stub<native::op##_stub>, TYPED(op, T)> }

const KernelRow pointwise_rows[] = {
    BINARY(add, "Tensor", call_add, T, T, S),
    BINARY(sub, "Tensor", call_sub, T, T, S),
    STUB_BINARY(mul, "Tensor", mul_stub),
    STUB_BINARY(div, "Tensor", div_true_stub),
    STUB_BINARY(maximum, "", maximum_stub),
    STUB_BINARY(minimum, "", minimum_stub),
    AIRGRAPH_OUT(remainder, "Tensor", T, T),
    AIRGRAPH_OUT(fmod, "Tensor", T, T),
    AIRGRAPH_OUT(atan2, "", T, T),
    AIRGRAPH_OUT(pow, "Tensor_Tensor", T, T),
    {"aten::pow", "Tensor_Scalar", &make_pow},
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
    {"aten::relu", "", &make_unary<&call_relu, relu_out>},
    STUB_UNARY(silu),
    STUB_UNARY(sigmoid),
    STUB_UNARY(tanh),
    STUB_UNARY(exp),
    STUB_UNARY(exp2),
    STUB_UNARY(expm1),
    STUB_UNARY(log),
    STUB_UNARY(log1p),
    STUB_UNARY(log2),
    STUB_UNARY(sqrt),
    STUB_UNARY(rsqrt),
    STUB_UNARY(reciprocal),
    STUB_UNARY(neg),
    UNARY(abs),
    UNARY(sign),
    STUB_UNARY(sin),
    STUB_UNARY(cos),
    STUB_UNARY(tan),
    STUB_UNARY(atan),
    STUB_UNARY(erf),
    STUB_UNARY(erfc),
    STUB_UNARY(floor),
    STUB_UNARY(ceil),
    STUB_UNARY(round),
    STUB_UNARY(trunc),
    STUB_UNARY(mish),
    UNARY(hardswish),
    UNARY(hardsigmoid),
    UNARY(bitwise_not),
    UNARY(logical_not),
};

}  // namespace

c10::ArrayRef<KernelRow> pointwise_kernels() { return pointwise_rows; }

}  // namespace airgraph
