// Operators that answer questions about elements: comparisons, membership, selection by condition.
#include "operator.h"

using namespace simcann::opapi;

#define COMPARISON(name, function)                                                                        \
  SIMCANN_OPERATOR(3, aclnn##name##Tensor, [](const Tensor& self, const Tensor& other, Tensor& out) {     \
    store(out, function(self, other));                                                                    \
  })                                                                                                      \
  SIMCANN_OPERATOR(3, aclnn##name##Scalar, [](const Tensor& self, const Scalar& other, Tensor& out) {     \
    store(out, function(self, other));                                                                    \
  })                                                                                                      \
  SIMCANN_OPERATOR(2, aclnnInplace##name##Tensor, [](Tensor& self, const Tensor& other) {                 \
    store(self, function(self, other));                                                                   \
  })                                                                                                      \
  SIMCANN_OPERATOR(2, aclnnInplace##name##Scalar, [](Tensor& self, const Scalar& other) {                 \
    store(self, function(self, other));                                                                   \
  })

COMPARISON(Eq, at::eq)
COMPARISON(Ne, at::ne)
COMPARISON(Lt, at::lt)
COMPARISON(Le, at::le)
COMPARISON(Gt, at::gt)
COMPARISON(Ge, at::ge)

SIMCANN_OPERATOR(3, aclnnEqual, [](const Tensor& self, const Tensor& other, Tensor& out) {
  out.fill_(at::equal(self, other));
})

SIMCANN_OPERATOR(6, aclnnIsClose,
                 [](const Tensor& self, const Tensor& other, double rtol, double atol, bool equal_nan, Tensor& out) {
                   store(out, at::isclose(self, other, rtol, atol, equal_nan));
                 })

SIMCANN_OPERATOR(5, aclnnIsInScalarTensor,
                 [](const Scalar& element, const Tensor& test_elements, bool assume_unique, bool invert, Tensor& out) {
                   store(out, at::isin(element, test_elements, assume_unique, invert));
                 })
SIMCANN_OPERATOR(5, aclnnIsInTensorScalar,
                 [](const Tensor& element, const Scalar& test_element, bool assume_unique, bool invert, Tensor& out) {
                   store(out, at::isin(element, test_element, assume_unique, invert));
                 })

SIMCANN_OPERATOR(4, aclnnSWhere, [](const Tensor& condition, const Tensor& self, const Tensor& other, Tensor& out) {
  store(out, at::where(condition, self, other));
})
