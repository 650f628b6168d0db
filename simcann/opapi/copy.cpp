// Operators that move elements without computing: copies, casts, joins, repeats, rearrangements.
#include "operator.h"

using namespace simcann::opapi;

SIMCANN_OPERATOR(2, aclnnInplaceCopy, [](Tensor& self, const Tensor& source) { self.copy_(source); })

SIMCANN_OPERATOR(3, aclnnCast, [](const Tensor& self, ScalarType, Tensor& out) { store(out, self); })

SIMCANN_OPERATOR(3, aclnnCat, [](const TensorList& tensors, int64_t dim, Tensor& out) {
  store(out, at::cat(tensors, dim));
})

SIMCANN_OPERATOR(3, aclnnStack, [](const TensorList& tensors, int64_t dim, Tensor& out) {
  store(out, at::stack(tensors, dim));
})

SIMCANN_OPERATOR(3, aclnnRepeat, [](const Tensor& self, const Ints& repeats, Tensor& out) {
  store(out, self.repeat(repeats));
})

SIMCANN_OPERATOR(4, aclnnRepeatInterleave,
                 [](const Tensor& self, const Tensor& repeats, int64_t, Tensor& out) {
                   store(out, at::repeat_interleave(self, repeats));
                 })
SIMCANN_OPERATOR(5, aclnnRepeatInterleaveWithDim,
                 [](const Tensor& self, const Tensor& repeats, int64_t dim, int64_t, Tensor& out) {
                   store(out, at::repeat_interleave(self, repeats, dim));
                 })
SIMCANN_OPERATOR(4, aclnnRepeatInterleaveInt, [](const Tensor& self, int64_t repeats, int64_t, Tensor& out) {
  store(out, at::repeat_interleave(self, repeats));
})
SIMCANN_OPERATOR(5, aclnnRepeatInterleaveIntWithDim,
                 [](const Tensor& self, int64_t repeats, int64_t dim, int64_t, Tensor& out) {
                   store(out, at::repeat_interleave(self, repeats, dim));
                 })
SIMCANN_OPERATOR(3, aclnnRepeatInterleaveTensor, [](const Tensor& repeats, int64_t, Tensor& out) {
  store(out, at::repeat_interleave(repeats));
})

SIMCANN_OPERATOR(3, aclnnFlip, [](const Tensor& self, const Ints& dims, Tensor& out) {
  store(out, at::flip(self, dims));
})

SIMCANN_OPERATOR(4, aclnnRoll, [](const Tensor& self, const Ints& shifts, const Ints& dims, Tensor& out) {
  store(out, at::roll(self, shifts, dims));
})

SIMCANN_OPERATOR(4, aclnnConstantPadNd, [](const Tensor& self, const Ints& pad, const Scalar& value, Tensor& out) {
  store(out, at::constant_pad_nd(self, pad, value));
})

SIMCANN_OPERATOR(3, aclnnTril, [](const Tensor& self, int64_t diagonal, Tensor& out) {
  store(out, at::tril(self, diagonal));
})
SIMCANN_OPERATOR(3, aclnnTriu, [](const Tensor& self, int64_t diagonal, Tensor& out) {
  store(out, at::triu(self, diagonal));
})
SIMCANN_OPERATOR(2, aclnnInplaceTril, [](Tensor& self, int64_t diagonal) { store(self, at::tril(self, diagonal)); })
SIMCANN_OPERATOR(2, aclnnInplaceTriu, [](Tensor& self, int64_t diagonal) { store(self, at::triu(self, diagonal)); })
