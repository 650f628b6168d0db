// Operators over lists of tensors, element by element of the lists.
#include "operator.h"

using namespace simcann::opapi;

SIMCANN_OPERATOR(2, aclnnForeachCopy, [](const TensorList& source, const TensorList& self) {
  for (size_t i = 0; i < self.size(); ++i) {
    self[i].copy_(source.at(i));
  }
})

SIMCANN_OPERATOR(1, aclnnForeachZeroInplace, [](const TensorList& self) {
  for (const auto& tensor : self) {
    tensor.zero_();
  }
})

#define FOREACH_LIST(name, function)                                                                            \
  SIMCANN_OPERATOR(3, aclnnForeach##name,                                                                       \
                   [](const TensorList& self, const TensorList& other, const TensorList& out) {                 \
                     for (size_t i = 0; i < out.size(); ++i) {                                                  \
                       store(out[i], function(self.at(i), other.at(i)));                                        \
                     }                                                                                          \
                   })

#define FOREACH_SCALED_LIST(name, function)                                                                          \
  SIMCANN_OPERATOR(4, aclnnForeach##name,                                                                            \
                   [](const TensorList& self, const TensorList& other, const Scalar& alpha, const TensorList& out) { \
                     for (size_t i = 0; i < out.size(); ++i) {                                                       \
                       store(out[i], function(self.at(i), other.at(i), alpha));                                      \
                     }                                                                                               \
                   })

#define FOREACH_SCALAR(name, function)                                                                          \
  SIMCANN_OPERATOR(3, aclnnForeach##name,                                                                       \
                   [](const TensorList& self, const Scalar& other, const TensorList& out) {                     \
                     for (size_t i = 0; i < out.size(); ++i) {                                                  \
                       store(out[i], function(self.at(i), other));                                              \
                     }                                                                                          \
                   })

#define FOREACH_SCALARS(name, function)                                                                         \
  SIMCANN_OPERATOR(3, aclnnForeach##name,                                                                       \
                   [](const TensorList& self, const Scalars& others, const TensorList& out) {                   \
                     for (size_t i = 0; i < out.size(); ++i) {                                                  \
                       store(out[i], function(self.at(i), others.at(i)));                                       \
                     }                                                                                          \
                   })

FOREACH_SCALED_LIST(AddListV2, at::add)
FOREACH_SCALED_LIST(SubListV2, at::sub)
FOREACH_LIST(MulList, at::mul)
FOREACH_LIST(DivList, at::div)
FOREACH_SCALAR(AddScalarV2, at::add)
FOREACH_SCALAR(SubScalarV2, at::sub)
FOREACH_SCALAR(MulScalarV2, at::mul)
FOREACH_SCALAR(DivScalarV2, at::div)
FOREACH_SCALARS(AddScalarList, at::add)
FOREACH_SCALARS(SubScalarList, at::sub)
FOREACH_SCALARS(MulScalarList, at::mul)
FOREACH_SCALARS(DivScalarList, at::div)
