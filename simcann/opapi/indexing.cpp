// Operators that read or write elements chosen by an index or a mask.
#include "operator.h"

#include <algorithm>
#include <array>

using namespace simcann::opapi;

namespace {

// torch_npu passes an empty tensor for a dimension without an index, just like an index that selects nothing.
// Where something is selected, every empty one is of the first kind.
c10::List<std::optional<Tensor>> index_list(const TensorList& indices) {
  c10::List<std::optional<Tensor>> list;
  for (const auto& index : indices) {
    list.push_back(index.numel() == 0 ? std::nullopt : std::optional<Tensor>(index));
  }
  return list;
}

bool selects_nothing(const TensorList& indices) {
  return std::all_of(indices.begin(), indices.end(), [](const Tensor& index) { return index.numel() == 0; });
}

Tensor scattered(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source, int64_t reduction) {
  switch (reduction) {
    case 0:
      return at::scatter(self, dim, index, source);
    case 1:
      return at::scatter(self, dim, index, source, "add");
    case 2:
      return at::scatter(self, dim, index, source, "multiply");
    default:
      TORCH_CHECK(false, "no scatter reduction has the number ", reduction);
  }
}

Tensor scattered(const Tensor& self, int64_t dim, const Tensor& index, const Scalar& value, int64_t reduction) {
  return scattered(self, dim, index, at::full(index.sizes(), value, self.options()), reduction);
}

Tensor scatter_reduced(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source, int64_t reduction,
                       bool include_self) {
  constexpr std::array<const char*, 6> NAMES{"", "sum", "prod", "amax", "amin", "mean"};
  if (reduction == 0) {
    return at::scatter(self, dim, index, source);
  }
  return at::scatter_reduce(self, dim, index, source, NAMES.at(reduction), include_self);
}

}  // namespace

SIMCANN_OPERATOR(3, aclnnEmbedding, [](const Tensor& weight, const Tensor& indices, Tensor& out) {
  store(out, at::embedding(weight, indices));
})

SIMCANN_OPERATOR(3, aclnnIndex, [](const Tensor& self, const TensorList& indices, Tensor& out) {
  if (!selects_nothing(indices)) {
    store(out, at::index(self, index_list(indices)));
  }
})
SIMCANN_OPERATOR(5, aclnnIndexPutImpl,
                 [](Tensor& self, const TensorList& indices, const Tensor& values, bool accumulate, bool unsafe) {
                   if (!selects_nothing(indices)) {
                     at::_index_put_impl_(self, index_list(indices), values, accumulate, unsafe);
                   }
                 })
SIMCANN_OPERATOR(4, aclnnIndexSelect, [](const Tensor& self, int64_t dim, const Tensor& index, Tensor& out) {
  store(out, at::index_select(self, dim, index));
})
SIMCANN_OPERATOR(5, aclnnIndexCopy,
                 [](const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source, Tensor& out) {
                   store(out, at::index_copy(self, dim, index, source));
                 })
SIMCANN_OPERATOR(4, aclnnInplaceIndexCopy,
                 [](Tensor& self, int64_t dim, const Tensor& index, const Tensor& source) {
                   self.index_copy_(dim, index, source);
                 })
SIMCANN_OPERATOR(6, aclnnIndexAdd,
                 [](const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source, const Scalar& alpha,
                    Tensor& out) { store(out, at::index_add(self, dim, index, source, alpha)); })
SIMCANN_OPERATOR(5, aclnnIndexFill,
                 [](const Tensor& self, int64_t dim, const Tensor& index, const Scalar& value, Tensor& out) {
                   store(out, at::index_fill(self, dim, index, value));
                 })
SIMCANN_OPERATOR(4, aclnnInplaceIndexFill,
                 [](Tensor& self, int64_t dim, const Tensor& index, const Scalar& value) {
                   self.index_fill_(dim, index, value);
                 })

SIMCANN_OPERATOR(4, aclnnGather, [](const Tensor& self, int64_t dim, const Tensor& index, Tensor& out) {
  store(out, at::gather(self, dim, index));
})
SIMCANN_OPERATOR(3, aclnnTake, [](const Tensor& self, const Tensor& index, Tensor& out) {
  store(out, at::take(self, index));
})

SIMCANN_OPERATOR(6, aclnnScatter,
                 [](const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source, int64_t reduction,
                    Tensor& out) { store(out, scattered(self, dim, index, source, reduction)); })
SIMCANN_OPERATOR(6, aclnnScatterValue,
                 [](const Tensor& self, int64_t dim, const Tensor& index, const Scalar& value, int64_t reduction,
                    Tensor& out) { store(out, scattered(self, dim, index, value, reduction)); })
SIMCANN_OPERATOR(5, aclnnInplaceScatter,
                 [](Tensor& self, int64_t dim, const Tensor& index, const Tensor& source, int64_t reduction) {
                   store(self, scattered(self, dim, index, source, reduction));
                 })
SIMCANN_OPERATOR(5, aclnnInplaceScatterValue,
                 [](Tensor& self, int64_t dim, const Tensor& index, const Scalar& value, int64_t reduction) {
                   store(self, scattered(self, dim, index, value, reduction));
                 })
SIMCANN_OPERATOR(5, aclnnScatterAdd,
                 [](const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source, Tensor& out) {
                   store(out, at::scatter_add(self, dim, index, source));
                 })
SIMCANN_OPERATOR(7, aclnnScatterReduce,
                 [](const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source, int64_t reduction,
                    bool include_self, Tensor& out) {
                   store(out, scatter_reduced(self, dim, index, source, reduction, include_self));
                 })
SIMCANN_OPERATOR(6, aclnnInplaceScatterReduce,
                 [](Tensor& self, int64_t dim, const Tensor& index, const Tensor& source, int64_t reduction,
                    bool include_self) {
                   store(self, scatter_reduced(self, dim, index, source, reduction, include_self));
                 })

SIMCANN_OPERATOR(3, aclnnInplaceMaskedFillScalar, [](Tensor& self, const Tensor& mask, const Scalar& value) {
  self.masked_fill_(mask.to(at::kBool), value);
})
SIMCANN_OPERATOR(3, aclnnInplaceMaskedFillTensor, [](Tensor& self, const Tensor& mask, const Tensor& value) {
  self.masked_fill_(mask.to(at::kBool), value.squeeze());
})
SIMCANN_OPERATOR(3, aclnnInplaceMaskedScatter, [](Tensor& self, const Tensor& mask, const Tensor& source) {
  self.masked_scatter_(mask, source);
})

// The outputs of these arrive with room for every element; the caller then asks for their shape.
SIMCANN_OPERATOR(3, aclnnMaskedSelect, [](const Tensor& self, const Tensor& mask, Resizable& out) {
  out.store(at::masked_select(self, mask.to(at::kBool)));
})
SIMCANN_OPERATOR(2, aclnnNonzero, [](const Tensor& self, Resizable& out) { out.store(at::nonzero(self)); })
SIMCANN_OPERATOR(2, aclnnNonzeroV2, [](const Tensor& self, Resizable& out) {
  out.store(at::nonzero(self).t().contiguous());
})
