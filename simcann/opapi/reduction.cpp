// Operators that fold dimensions, and running folds along one.
#include "operator.h"

#include <algorithm>
#include <numeric>

using namespace simcann::opapi;

namespace {

// An empty list of dimensions means all of them.
Ints all_if_empty(const Tensor& self, const Ints& dims) {
  if (!dims.empty()) {
    return dims;
  }
  Ints all(self.dim());
  std::iota(all.begin(), all.end(), 0);
  return all;
}

using Test = Tensor (*)(const Tensor&, int64_t, bool);

// any and all: one dimension after the other, the last one first.
Tensor tested(const Tensor& self, const Ints& dims, bool keepdim, Test test) {
  auto order = all_if_empty(self, dims);
  for (auto& dim : order) {
    dim = at::maybe_wrap_dim(dim, self.dim());
  }
  std::sort(order.rbegin(), order.rend());
  auto result = self.to(at::kBool);
  for (const auto dim : order) {
    result = test(result, dim, keepdim);
  }
  return result;
}

}  // namespace

SIMCANN_OPERATOR(4, aclnnAll, [](const Tensor& self, const Ints& dims, bool keepdim, Tensor& out) {
  store(out, tested(self, dims, keepdim, at::all));
})
SIMCANN_OPERATOR(4, aclnnAny, [](const Tensor& self, const Ints& dims, bool keepdim, Tensor& out) {
  store(out, tested(self, dims, keepdim, at::any));
})

SIMCANN_OPERATOR(5, aclnnReduceSum,
                 [](const Tensor& self, const Ints& dims, bool keepdim, ScalarType dtype, Tensor& out) {
                   store(out, at::sum(self, dims, keepdim, dtype));
                 })
SIMCANN_OPERATOR(5, aclnnReduceNansum,
                 [](const Tensor& self, const Ints& dims, bool keepdim, ScalarType dtype, Tensor& out) {
                   store(out, at::nansum(self, dims, keepdim, dtype));
                 })
SIMCANN_OPERATOR(5, aclnnMean,
                 [](const Tensor& self, const Ints& dims, bool keepdim, ScalarType dtype, Tensor& out) {
                   store(out, at::mean(self, dims, keepdim, dtype));
                 })
SIMCANN_OPERATOR(3, aclnnProd, [](const Tensor& self, ScalarType dtype, Tensor& out) {
  store(out, at::prod(self, dtype));
})
SIMCANN_OPERATOR(5, aclnnProdDim,
                 [](const Tensor& self, int64_t dim, bool keepdim, ScalarType dtype, Tensor& out) {
                   store(out, at::prod(self, dim, keepdim, dtype));
                 })

SIMCANN_OPERATOR(4, aclnnAmax, [](const Tensor& self, const Ints& dims, bool keepdim, Tensor& out) {
  store(out, at::amax(self, dims, keepdim));
})
SIMCANN_OPERATOR(4, aclnnAmin, [](const Tensor& self, const Ints& dims, bool keepdim, Tensor& out) {
  store(out, at::amin(self, dims, keepdim));
})
SIMCANN_OPERATOR(5, aclnnAminmax,
                 [](const Tensor& self, const Ints& dims, bool keepdim, Tensor& minimum, Tensor& maximum) {
                   store(minimum, at::amin(self, dims, keepdim));
                   store(maximum, at::amax(self, dims, keepdim));
                 })
SIMCANN_OPERATOR(2, aclnnMax, [](const Tensor& self, Tensor& out) { store(out, at::max(self)); })
SIMCANN_OPERATOR(2, aclnnMin, [](const Tensor& self, Tensor& out) { store(out, at::min(self)); })

#define EXTREME_WITH_INDEX(name, function)                                                                       \
  SIMCANN_OPERATOR(5, aclnn##name,                                                                               \
                   [](const Tensor& self, int64_t dim, bool keepdim, Tensor& values, Tensor& indices) {          \
                     const auto [value, index] = function(self, dim, keepdim);                                   \
                     store(values, value);                                                                       \
                     store(indices, index);                                                                      \
                   })

EXTREME_WITH_INDEX(MaxDim, at::max)
EXTREME_WITH_INDEX(MinDim, at::min)

SIMCANN_OPERATOR(4, aclnnArgMax, [](const Tensor& self, int64_t dim, bool keepdim, Tensor& out) {
  store(out, at::argmax(self, dim, keepdim));
})
SIMCANN_OPERATOR(4, aclnnArgMin, [](const Tensor& self, int64_t dim, bool keepdim, Tensor& out) {
  store(out, at::argmin(self, dim, keepdim));
})

SIMCANN_OPERATOR(5, aclnnVarCorrection,
                 [](const Tensor& self, const Ints& dims, int64_t correction, bool keepdim, Tensor& out) {
                   store(out, at::var(self, all_if_empty(self, dims), correction, keepdim));
                 })
SIMCANN_OPERATOR(6, aclnnVarMean,
                 [](const Tensor& self, const Ints& dims, int64_t correction, bool keepdim, Tensor& variance,
                    Tensor& mean) {
                   const auto [first, second] = at::var_mean(self, all_if_empty(self, dims), correction, keepdim);
                   store(variance, first);
                   store(mean, second);
                 })
SIMCANN_OPERATOR(5, aclnnStd,
                 [](const Tensor& self, const Ints& dims, int64_t correction, bool keepdim, Tensor& out) {
                   store(out, at::std(self, all_if_empty(self, dims), correction, keepdim));
                 })

SIMCANN_OPERATOR(5, aclnnNorm,
                 [](const Tensor& self, const Scalar& p, const Ints& dims, bool keepdim, Tensor& out) {
                   store(out, at::norm(self, p, dims, keepdim));
                 })
SIMCANN_OPERATOR(6, aclnnLinalgVectorNorm,
                 [](const Tensor& self, const Scalar& order, const Ints& dims, bool keepdim, ScalarType, Tensor& out) {
                   store(out, at::linalg_vector_norm(self, order, all_if_empty(self, dims), keepdim));
                 })
SIMCANN_OPERATOR(4, aclnnLogSumExp, [](const Tensor& self, const Ints& dims, bool keepdim, Tensor& out) {
  store(out, at::logsumexp(self, dims, keepdim));
})

SIMCANN_OPERATOR(4, aclnnCumsum, [](const Tensor& self, int64_t dim, ScalarType dtype, Tensor& out) {
  store(out, at::cumsum(self, dim, dtype));
})
SIMCANN_OPERATOR(4, aclnnCumprod, [](const Tensor& self, const Scalar& dim, ScalarType dtype, Tensor& out) {
  store(out, at::cumprod(self, dim.toLong(), dtype));
})

SIMCANN_OPERATOR(4, aclnnBincount,
                 [](const Tensor& self, const Tensor& weights, int64_t minlength, Tensor& out) {
                   store(out, at::bincount(self, optional(weights), minlength));
                 })
