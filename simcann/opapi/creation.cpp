// Operators that fill a tensor with given values.
#include "operator.h"

using namespace simcann::opapi;

SIMCANN_OPERATOR(1, aclnnInplaceZero, [](Tensor& self) { self.zero_(); })
SIMCANN_OPERATOR(1, aclnnInplaceOne, [](Tensor& self) { self.fill_(1); })
SIMCANN_OPERATOR(2, aclnnInplaceFillScalar, [](Tensor& self, const Scalar& value) { self.fill_(value); })
SIMCANN_OPERATOR(2, aclnnInplaceFillTensor, [](Tensor& self, const Tensor& value) { self.fill_(value.squeeze()); })
SIMCANN_OPERATOR(3, aclnnInplaceFillDiagonal, [](Tensor& self, const Scalar& value, bool wrap) {
  self.fill_diagonal_(value, wrap);
})

SIMCANN_OPERATOR(4, aclnnArange, [](const Scalar& start, const Scalar& end, const Scalar& step, Tensor& out) {
  store(out, at::arange(start, end, step, out.options()));
})
SIMCANN_OPERATOR(4, aclnnRange, [](const Scalar& start, const Scalar& end, const Scalar& step, Tensor& out) {
  auto values = at::empty({0}, out.options());
  store(out, at::range_out(values, start, end, step));
})
SIMCANN_OPERATOR(4, aclnnLinspace, [](const Scalar& start, const Scalar& end, int64_t steps, Tensor& out) {
  store(out, at::linspace(start, end, steps, out.options()));
})
SIMCANN_OPERATOR(3, aclnnEye, [](int64_t n, int64_t m, Tensor& out) { store(out, at::eye(n, m, out.options())); })

SIMCANN_OPERATOR(6, aclnnOneHot,
                 [](const Tensor& self, int64_t depth, const Tensor& on_value, const Tensor& off_value, int64_t axis,
                    Tensor& out) {
                   auto classes = at::arange(depth, self.options().dtype(at::kLong));
                   auto hot = at::eq(self.unsqueeze(-1), classes).movedim(-1, axis);
                   store(out, at::where(hot, on_value.squeeze(), off_value.squeeze()));
                 })
