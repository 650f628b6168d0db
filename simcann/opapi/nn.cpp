// Operators of neural networks: activations, softmax, normalisation, loss.
#include "operator.h"

#include <numeric>

using namespace simcann::opapi;

// torch_npu does not say here which approximation its caller asked for. Taken to be tanh; not checked on a card.
SIMCANN_OPERATOR(2, aclnnGelu, [](const Tensor& self, Tensor& out) { store(out, at::gelu(self, "tanh")); })
SIMCANN_OPERATOR(3, aclnnGeluV2, [](const Tensor& self, int64_t mode, Tensor& out) {
  store(out, at::gelu(self, mode == 1 ? "tanh" : "none"));
})

SIMCANN_OPERATOR(2, aclnnRelu, [](const Tensor& self, Tensor& out) { store(out, at::relu(self)); })
SIMCANN_OPERATOR(1, aclnnInplaceRelu, [](Tensor& self) { store(self, at::relu(self)); })
SIMCANN_OPERATOR(2, aclnnMish, [](const Tensor& self, Tensor& out) { store(out, at::mish(self)); })
SIMCANN_OPERATOR(1, aclnnInplaceMish, [](Tensor& self) { store(self, at::mish(self)); })
SIMCANN_OPERATOR(2, aclnnHardswish, [](const Tensor& self, Tensor& out) { store(out, at::hardswish(self)); })
SIMCANN_OPERATOR(1, aclnnInplaceHardswish, [](Tensor& self) { store(self, at::hardswish(self)); })
SIMCANN_OPERATOR(2, aclnnHardsigmoid, [](const Tensor& self, Tensor& out) { store(out, at::hardsigmoid(self)); })
SIMCANN_OPERATOR(1, aclnnInplaceHardsigmoid, [](Tensor& self) { store(self, at::hardsigmoid(self)); })

SIMCANN_OPERATOR(3, aclnnLeakyRelu, [](const Tensor& self, const Scalar& slope, Tensor& out) {
  store(out, at::leaky_relu(self, slope));
})
SIMCANN_OPERATOR(2, aclnnInplaceLeakyRelu, [](Tensor& self, const Scalar& slope) {
  store(self, at::leaky_relu(self, slope));
})
SIMCANN_OPERATOR(5, aclnnElu,
                 [](const Tensor& self, const Scalar& alpha, const Scalar& scale, const Scalar& input_scale,
                    Tensor& out) { store(out, at::elu(self, alpha, scale, input_scale)); })
SIMCANN_OPERATOR(4, aclnnInplaceElu,
                 [](Tensor& self, const Scalar& alpha, const Scalar& scale, const Scalar& input_scale) {
                   store(self, at::elu(self, alpha, scale, input_scale));
                 })
SIMCANN_OPERATOR(4, aclnnSoftplus,
                 [](const Tensor& self, const Scalar& beta, const Scalar& threshold, Tensor& out) {
                   store(out, at::softplus(self, beta, threshold));
                 })
SIMCANN_OPERATOR(4, aclnnHardtanh, [](const Tensor& self, const Scalar& min, const Scalar& max, Tensor& out) {
  store(out, at::hardtanh(self, min, max));
})
SIMCANN_OPERATOR(3, aclnnInplaceHardtanh, [](Tensor& self, const Scalar& min, const Scalar& max) {
  store(self, at::hardtanh(self, min, max));
})
SIMCANN_OPERATOR(4, aclnnThreshold,
                 [](const Tensor& self, const Scalar& threshold, const Scalar& value, Tensor& out) {
                   store(out, at::threshold(self, threshold, value));
                 })
SIMCANN_OPERATOR(3, aclnnGlu, [](const Tensor& self, int64_t dim, Tensor& out) { store(out, at::glu(self, dim)); })
SIMCANN_OPERATOR(3, aclnnSwiGlu, [](const Tensor& self, int64_t dim, Tensor& out) {
  const auto halves = self.chunk(2, dim);
  store(out, at::silu(halves[0]) * halves[1]);
})

// The output's type may be wider than the input's.
SIMCANN_OPERATOR(3, aclnnSoftmax, [](const Tensor& self, int64_t dim, Tensor& out) {
  store(out, at::softmax(self, dim, out.scalar_type()));
})
SIMCANN_OPERATOR(3, aclnnLogSoftmax, [](const Tensor& self, int64_t dim, Tensor& out) {
  store(out, at::log_softmax(self, dim, out.scalar_type()));
})
SIMCANN_OPERATOR(8, aclnnLayerNorm,
                 [](const Tensor& input, const Ints& shape, const Tensor& weight, const Tensor& bias, double eps,
                    Tensor& out, Tensor& mean, Tensor& rstd) {
                   const auto [y, m, r] = at::native_layer_norm(input, shape, optional(weight), optional(bias), eps);
                   store(out, y);
                   store(mean, m.reshape(mean.sizes()));
                   store(rstd, r.reshape(rstd.sizes()));
                 })

namespace {

// Normalises over gamma's dimensions; computes in float.
void rms_norm(const Tensor& input, const Tensor& gamma, double epsilon, const Tensor& out, const Tensor& rstd) {
  Ints dims(gamma.dim());
  std::iota(dims.begin(), dims.end(), input.dim() - gamma.dim());
  const auto wide = input.to(at::kFloat);
  const auto scale = at::rsqrt(at::mean(wide * wide, dims, true) + epsilon);
  store(out, wide * scale * gamma.to(at::kFloat));
  store(rstd, scale.reshape(rstd.sizes()));
}

}  // namespace

SIMCANN_OPERATOR(5, aclnnRmsNorm,
                 [](const Tensor& input, const Tensor& gamma, double epsilon, Tensor& out, Tensor& rstd) {
                   rms_norm(input, gamma, epsilon, out, rstd);
                 })
SIMCANN_OPERATOR(7, aclnnAddRmsNorm,
                 [](const Tensor& first, const Tensor& second, const Tensor& gamma, double epsilon, Tensor& out,
                    Tensor& rstd, Tensor& sum) {
                   store(sum, first + second);
                   rms_norm(sum, gamma, epsilon, out, rstd);
                 })

SIMCANN_OPERATOR(5, aclnnRotaryPositionEmbedding,
                 [](const Tensor& self, const Tensor& cosine, const Tensor& sine, int64_t mode, Tensor& out) {
                   TORCH_CHECK(mode == 0 || mode == 1, "only the modes 0 (half) and 1 (interleave) are simulated, not ",
                               mode);
                   Tensor rotated;
                   if (mode == 0) {
                     const auto halves = self.chunk(2, -1);
                     rotated = at::cat({-halves[1], halves[0]}, -1);
                   } else {
                     const auto pairs = self.unflatten(-1, {-1, 2});
                     rotated = at::stack({-pairs.select(-1, 1), pairs.select(-1, 0)}, -1).flatten(-2);
                   }
                   store(out, self * cosine + rotated * sine);
                 })

SIMCANN_OPERATOR(7, aclnnNLLLoss,
                 [](const Tensor& self, const Tensor& target, const Tensor& weight, int64_t reduction,
                    int64_t ignore_index, Tensor& out, Tensor& total_weight) {
                   const auto [loss, total] =
                       at::nll_loss_forward(self, target.to(at::kLong), optional(weight), reduction, ignore_index);
                   store(out, loss);
                   store(total_weight, total.reshape(total_weight.sizes()));
                 })

SIMCANN_OPERATOR(4, aclnnMseLoss, [](const Tensor& self, const Tensor& target, int64_t reduction, Tensor& out) {
  store(out, at::mse_loss(self, target, reduction));
})
