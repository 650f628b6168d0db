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

#define UNARY(op) AIRGRAPH_OUT(op, "", T)

const KernelRow rows[] = {
    AIRGRAPH_OUT(add, "Tensor", T, T, S),
    AIRGRAPH_OUT(sub, "Tensor", T, T, S),
    AIRGRAPH_OUT(mul, "Tensor", T, T),
    AIRGRAPH_OUT(div, "Tensor", T, T),
    AIRGRAPH_OUT(maximum, "", T, T),
    AIRGRAPH_OUT(minimum, "", T, T),
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
