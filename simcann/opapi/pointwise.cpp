// Operators that compute each element on its own, with broadcasting: arithmetic and elementary functions.
#include "operator.h"

using namespace simcann::opapi;

#define UNARY(name, function) \
  SIMCANN_OPERATOR(2, aclnn##name, [](const Tensor& self, Tensor& out) { store(out, function(self)); })

#define UNARY_IN_PLACE(name, function) \
  SIMCANN_OPERATOR(1, aclnnInplace##name, [](Tensor& self) { store(self, function(self)); })

#define UNARY_BOTH(name, function) \
  UNARY(name, function)            \
  UNARY_IN_PLACE(name, function)

UNARY(Abs, at::abs)
UNARY(BitwiseNot, at::bitwise_not)
UNARY(IsFinite, at::isfinite)
UNARY(IsNegInf, at::isneginf)
UNARY(IsPosInf, at::isposinf)
UNARY(Neg, at::neg)
UNARY(Round, at::round)
UNARY(Sign, at::sign)
UNARY(Signbit, at::signbit)
UNARY(Silu, at::silu)
UNARY(Trunc, at::trunc)
UNARY_BOTH(Acos, at::acos)
UNARY_BOTH(Asin, at::asin)
UNARY_BOTH(Atan, at::atan)
UNARY_BOTH(Ceil, at::ceil)
UNARY_BOTH(Cos, at::cos)
UNARY_BOTH(Cosh, at::cosh)
UNARY_BOTH(Erf, at::erf)
UNARY_BOTH(Erfc, at::erfc)
UNARY_BOTH(Exp, at::exp)
UNARY_BOTH(Exp2, at::exp2)
UNARY_BOTH(Expm1, at::expm1)
UNARY_BOTH(Floor, at::floor)
UNARY_BOTH(Frac, at::frac)
UNARY_BOTH(Log, at::log)
UNARY_BOTH(Log10, at::log10)
UNARY_BOTH(Log1p, at::log1p)
UNARY_BOTH(Log2, at::log2)
UNARY_BOTH(LogicalNot, at::logical_not)
UNARY_BOTH(Reciprocal, at::reciprocal)
UNARY_BOTH(Rsqrt, at::rsqrt)
UNARY_BOTH(Sigmoid, at::sigmoid)
UNARY_BOTH(Sin, at::sin)
UNARY_BOTH(Sinh, at::sinh)
UNARY_BOTH(Sqrt, at::sqrt)
UNARY_BOTH(Tan, at::tan)
UNARY_BOTH(Tanh, at::tanh)

#define BINARY(name, Other, function)                                                           \
  SIMCANN_OPERATOR(3, aclnn##name, [](const Tensor& self, const Other& other, Tensor& out) {    \
    store(out, function(self, other));                                                          \
  })

#define BINARY_IN_PLACE(name, Other, function)                                                  \
  SIMCANN_OPERATOR(2, aclnnInplace##name, [](Tensor& self, const Other& other) {                \
    store(self, function(self, other));                                                         \
  })

#define BINARY_BOTH(name, Other, function) \
  BINARY(name, Other, function)            \
  BINARY_IN_PLACE(name, Other, function)

BINARY_BOTH(Atan2, Tensor, at::atan2)
BINARY(Maximum, Tensor, at::maximum)
BINARY(Minimum, Tensor, at::minimum)
BINARY_BOTH(Mul, Tensor, at::mul)
BINARY_BOTH(Muls, Scalar, at::mul)
BINARY_BOTH(Div, Tensor, at::div)
BINARY_BOTH(Divs, Scalar, at::div)
BINARY_BOTH(FloorDivide, Tensor, at::floor_divide)
BINARY_BOTH(FloorDivides, Scalar, at::floor_divide)
BINARY_BOTH(FmodTensor, Tensor, at::fmod)
BINARY_BOTH(FmodScalar, Scalar, at::fmod)
BINARY_BOTH(RemainderTensorTensor, Tensor, at::remainder)
BINARY_BOTH(RemainderTensorScalar, Scalar, at::remainder)
BINARY_BOTH(PowTensorTensor, Tensor, at::pow)
BINARY_BOTH(PowTensorScalar, Scalar, at::pow)
BINARY_BOTH(BitwiseAndTensor, Tensor, at::bitwise_and)
BINARY_BOTH(BitwiseAndScalar, Scalar, at::bitwise_and)
BINARY(BitwiseOrTensor, Tensor, at::bitwise_or)
BINARY(BitwiseOrScalar, Scalar, at::bitwise_or)
BINARY_BOTH(BitwiseXorTensor, Tensor, at::bitwise_xor)
BINARY_BOTH(BitwiseXorScalar, Scalar, at::bitwise_xor)
BINARY(LeftShift, Tensor, at::bitwise_left_shift)
BINARY(LeftShifts, Scalar, at::bitwise_left_shift)
BINARY(RightShift, Tensor, at::bitwise_right_shift)
BINARY_BOTH(LogicalAnd, Tensor, at::logical_and)
BINARY_BOTH(LogicalOr, Tensor, at::logical_or)
BINARY(LogicalXor, Tensor, at::logical_xor)

SIMCANN_OPERATOR(3, aclnnPowScalarTensor, [](const Scalar& self, const Tensor& exponent, Tensor& out) {
  store(out, at::pow(self, exponent));
})
SIMCANN_OPERATOR(3, aclnnRemainderScalarTensor, [](const Scalar& self, const Tensor& other, Tensor& out) {
  store(out, at::remainder(self, other));
})

#define SCALED(name, Other, function)                                                                             \
  SIMCANN_OPERATOR(4, aclnn##name, [](const Tensor& self, const Other& other, const Scalar& alpha, Tensor& out) { \
    store(out, function(self, other, alpha));                                                                     \
  })

#define SCALED_IN_PLACE(name, Other, function)                                                             \
  SIMCANN_OPERATOR(3, aclnnInplace##name, [](Tensor& self, const Other& other, const Scalar& alpha) {      \
    store(self, function(self, other, alpha));                                                             \
  })

SCALED(Add, Tensor, at::add)
SCALED(Adds, Scalar, at::add)
SCALED(Sub, Tensor, at::sub)
SCALED(Subs, Scalar, at::sub)
SCALED(Rsub, Tensor, at::rsub)
SCALED(Rsubs, Scalar, at::rsub)
SCALED_IN_PLACE(Add, Tensor, at::add)
SCALED_IN_PLACE(Adds, Scalar, at::add)
SCALED_IN_PLACE(Sub, Tensor, at::sub)
SCALED_IN_PLACE(Subs, Scalar, at::sub)

SIMCANN_OPERATOR(4, aclnnAddV3, [](const Scalar& self, const Tensor& other, const Scalar& alpha, Tensor& out) {
  store(out, at::add(at::scalar_tensor(self, other.options()), other, alpha));
})

namespace {

// The rounding mode is passed as a number.
std::optional<c10::string_view> rounding_mode(int mode) {
  switch (mode) {
    case 1:
      return "trunc";
    case 2:
      return "floor";
    default:
      return std::nullopt;
  }
}

}  // namespace

SIMCANN_OPERATOR(4, aclnnDivMod, [](const Tensor& self, const Tensor& other, int mode, Tensor& out) {
  store(out, at::div(self, other, rounding_mode(mode)));
})
SIMCANN_OPERATOR(4, aclnnDivMods, [](const Tensor& self, const Scalar& other, int mode, Tensor& out) {
  store(out, at::div(self, other, rounding_mode(mode)));
})
SIMCANN_OPERATOR(3, aclnnInplaceDivMod, [](Tensor& self, const Tensor& other, int mode) {
  store(self, at::div(self, other, rounding_mode(mode)));
})
SIMCANN_OPERATOR(3, aclnnInplaceDivMods, [](Tensor& self, const Scalar& other, int mode) {
  store(self, at::div(self, other, rounding_mode(mode)));
})

#define THREE_TENSORS(name, function)                                                                           \
  SIMCANN_OPERATOR(5, aclnn##name, [](const Tensor& self, const Tensor& tensor1, const Tensor& tensor2,         \
                                      const Scalar& value, Tensor& out) {                                       \
    store(out, function(self, tensor1, tensor2, value));                                                        \
  })                                                                                                            \
  SIMCANN_OPERATOR(4, aclnnInplace##name,                                                                       \
                   [](Tensor& self, const Tensor& tensor1, const Tensor& tensor2, const Scalar& value) {        \
                     store(self, function(self, tensor1, tensor2, value));                                      \
                   })

THREE_TENSORS(Addcmul, at::addcmul)
THREE_TENSORS(Addcdiv, at::addcdiv)

SIMCANN_OPERATOR(4, aclnnLerp, [](const Tensor& self, const Tensor& end, const Tensor& weight, Tensor& out) {
  store(out, at::lerp(self, end, weight.to(self.scalar_type())));
})
SIMCANN_OPERATOR(4, aclnnLerps, [](const Tensor& self, const Tensor& end, const Scalar& weight, Tensor& out) {
  store(out, at::lerp(self, end, weight));
})
SIMCANN_OPERATOR(3, aclnnInplaceLerp, [](Tensor& self, const Tensor& end, const Tensor& weight) {
  store(self, at::lerp(self, end, weight.to(self.scalar_type())));
})
SIMCANN_OPERATOR(3, aclnnInplaceLerps, [](Tensor& self, const Tensor& end, const Scalar& weight) {
  store(self, at::lerp(self, end, weight));
})

SIMCANN_OPERATOR(4, aclnnClamp,
                 [](const Tensor& self, const OptionalScalar& min, const OptionalScalar& max, Tensor& out) {
                   store(out, at::clamp(self, min, max));
                 })
SIMCANN_OPERATOR(4, aclnnClampTensor, [](const Tensor& self, const Tensor& min, const Tensor& max, Tensor& out) {
  store(out, at::clamp(self, min, max));
})
BINARY(ClampMin, Scalar, at::clamp_min)
BINARY(ClampMinTensor, Tensor, at::clamp_min)
BINARY_IN_PLACE(ClampMinTensor, Tensor, at::clamp_min)
BINARY_BOTH(ClampMax, Scalar, at::clamp_max)
BINARY_BOTH(ClampMaxTensor, Tensor, at::clamp_max)

SIMCANN_OPERATOR(3, aclnnRoundDecimals, [](const Tensor& self, int64_t decimals, Tensor& out) {
  store(out, at::round(self, decimals));
})
SIMCANN_OPERATOR(2, aclnnInplaceRoundDecimals, [](Tensor& self, int64_t decimals) {
  store(self, at::round(self, decimals));
})

SIMCANN_OPERATOR(5, aclnnNanToNum, [](const Tensor& self, float nan, float posinf, float neginf, Tensor& out) {
  store(out, at::nan_to_num(self, nan, posinf, neginf));
})
SIMCANN_OPERATOR(4, aclnnInplaceNanToNum, [](Tensor& self, float nan, float posinf, float neginf) {
  store(self, at::nan_to_num(self, nan, posinf, neginf));
})
