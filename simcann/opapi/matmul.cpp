// Products of matrices and vectors. How the cube unit may round (cube_math_type) has no meaning on a CPU.
#include "operator.h"

using namespace simcann::opapi;

#define PRODUCT(name, function)                                                                             \
  SIMCANN_OPERATOR(4, aclnn##name, [](const Tensor& self, const Tensor& other, Tensor& out, int8_t) {       \
    store(out, function(self, other));                                                                      \
  })

PRODUCT(Mm, at::mm)
PRODUCT(Matmul, at::matmul)
PRODUCT(BatchMatMul, at::bmm)
PRODUCT(Mv, at::mv)

SIMCANN_OPERATOR(3, aclnnDot, [](const Tensor& self, const Tensor& other, Tensor& out) {
  store(out, at::dot(self, other));
})

#define ADDED_PRODUCT(name, function)                                                                             \
  SIMCANN_OPERATOR(7, aclnn##name, [](const Tensor& self, const Tensor& first, const Tensor& second,              \
                                      const Scalar& beta, const Scalar& alpha, Tensor& out, int8_t) {             \
    store(out, function(self, first, second, beta, alpha));                                                       \
  })

ADDED_PRODUCT(Addmm, at::addmm)
ADDED_PRODUCT(Addbmm, at::addbmm)
ADDED_PRODUCT(Baddbmm, at::baddbmm)

SIMCANN_OPERATOR(6, aclnnInplaceAddmm,
                 [](Tensor& self, const Tensor& first, const Tensor& second, const Scalar& beta, const Scalar& alpha,
                    int8_t) { store(self, at::addmm(self, first, second, beta, alpha)); })

// Unlike its siblings, this one takes alpha before beta.
SIMCANN_OPERATOR(7, aclnnAddmv,
                 [](const Tensor& self, const Tensor& matrix, const Tensor& vector, const Scalar& alpha,
                    const Scalar& beta, Tensor& out, int8_t) {
                   store(out, at::addmv(self, matrix, vector, beta, alpha));
                 })

SIMCANN_OPERATOR(6, aclnnAddr,
                 [](const Tensor& self, const Tensor& first, const Tensor& second, const Scalar& beta,
                    const Scalar& alpha, Tensor& out) { store(out, at::addr(self, first, second, beta, alpha)); })
SIMCANN_OPERATOR(5, aclnnInplaceAddr,
                 [](Tensor& self, const Tensor& first, const Tensor& second, const Scalar& beta, const Scalar& alpha) {
                   store(self, at::addr(self, first, second, beta, alpha));
                 })
