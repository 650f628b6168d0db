// Gradients of other operators.
#include "operator.h"

#include <array>

using namespace simcann::opapi;

#define OF_OUTPUT_OR_INPUT(name, function)                                                                \
  SIMCANN_OPERATOR(3, aclnn##name, [](const Tensor& grad, const Tensor& other, Tensor& out) {             \
    store(out, function(grad, other));                                                                    \
  })

OF_OUTPUT_OR_INPUT(SigmoidBackward, at::sigmoid_backward)
OF_OUTPUT_OR_INPUT(SiluBackward, at::silu_backward)
OF_OUTPUT_OR_INPUT(TanhBackward, at::tanh_backward)

// Of the same approximation as the forward operator.
SIMCANN_OPERATOR(3, aclnnGeluBackward, [](const Tensor& grad, const Tensor& self, Tensor& out) {
  store(out, at::gelu_backward(grad, self, "tanh"));
})

SIMCANN_OPERATOR(4, aclnnThresholdBackward,
                 [](const Tensor& grad, const Tensor& self, const Scalar& threshold, Tensor& out) {
                   store(out, at::threshold_backward(grad, self, threshold));
                 })

#define OF_SOFTMAX(name, function)                                                                                 \
  SIMCANN_OPERATOR(4, aclnn##name, [](const Tensor& grad, const Tensor& output, int64_t dim, Tensor& out) {        \
    store(out, function(grad, output, dim, output.scalar_type()));                                                 \
  })

OF_SOFTMAX(SoftmaxBackward, at::_softmax_backward_data)
OF_SOFTMAX(LogSoftmaxBackward, at::_log_softmax_backward_data)

SIMCANN_OPERATOR(11, aclnnLayerNormBackward,
                 [](const Tensor& grad, const Tensor& input, const Ints& shape, const Tensor& mean, const Tensor& rstd,
                    const Tensor& weight, const Tensor& bias, const Bools& wanted, Tensor& grad_input,
                    Tensor& grad_weight, Tensor& grad_bias) {
                   const std::array<bool, 3> mask{wanted[0] != 0, wanted[1] != 0, wanted[2] != 0};
                   const auto [x, w, b] = at::native_layer_norm_backward(grad, input, shape, mean, rstd,
                                                                         optional(weight), optional(bias), mask);
                   const std::array<std::pair<Tensor, Tensor>, 3> results{
                       {{grad_input, x}, {grad_weight, w}, {grad_bias, b}}};
                   for (const auto& [out, result] : results) {
                     if (out.defined()) {
                       store(out, result);
                     }
                   }
                 })

SIMCANN_OPERATOR(6, aclnnEmbeddingDenseBackward,
                 [](const Tensor& grad, const Tensor& indices, int64_t num_weights, int64_t padding_idx,
                    bool scale_grad_by_freq, Tensor& out) {
                   store(out, at::embedding_dense_backward(grad, indices.to(at::kLong), num_weights, padding_idx,
                                                           scale_grad_by_freq));
                 })

SIMCANN_OPERATOR(8, aclnnNLLLossBackward,
                 [](const Tensor& grad, const Tensor& self, const Tensor& target, const Tensor& weight,
                    int64_t reduction, int64_t ignore_index, const Tensor& total_weight, Tensor& out) {
                   store(out, at::nll_loss_backward(grad, self, target.to(at::kLong), optional(weight), reduction,
                                                    ignore_index, total_weight));
                 })

SIMCANN_OPERATOR(5, aclnnMseLossBackward,
                 [](const Tensor& grad, const Tensor& self, const Tensor& target, int64_t reduction, Tensor& out) {
                   store(out, at::mse_loss_backward(grad, self, target, reduction));
                 })
