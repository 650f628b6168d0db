// Operators that order elements or search among ordered ones.
#include "operator.h"

using namespace simcann::opapi;

SIMCANN_OPERATOR(6, aclnnSort,
                 [](const Tensor& self, bool stable, int64_t dim, bool descending, Tensor& values, Tensor& indices) {
                   const auto [value, index] = at::sort(self, stable, dim, descending);
                   store(values, value);
                   store(indices, index);
                 })

SIMCANN_OPERATOR(7, aclnnTopk,
                 [](const Tensor& self, int64_t k, int64_t dim, bool largest, bool sorted, Tensor& values,
                    Tensor& indices) {
                   const auto [value, index] = at::topk(self, k, dim, largest, sorted);
                   store(values, value);
                   store(indices, index);
                 })

SIMCANN_OPERATOR(6, aclnnKthvalue,
                 [](const Tensor& self, int64_t k, int64_t dim, bool keepdim, Tensor& values, Tensor& indices) {
                   const auto [value, index] = at::kthvalue(self, k, dim, keepdim);
                   store(values, value);
                   store(indices, index);
                 })

SIMCANN_OPERATOR(5, aclnnUnique,
                 [](const Tensor& self, bool sorted, bool return_inverse, Resizable& values, Tensor& inverse) {
                   const auto [value, index] = at::_unique(self, sorted, return_inverse);
                   values.store(value);
                   if (return_inverse) {
                     store(inverse, index);
                   }
                 })

SIMCANN_OPERATOR(7, aclnnUnique2,
                 [](const Tensor& self, bool sorted, bool return_inverse, bool return_counts, Resizable& values,
                    Tensor& inverse, Resizable& counts) {
                   const auto [value, index, count] = at::_unique2(self, sorted, return_inverse, return_counts);
                   values.store(value);
                   if (return_inverse) {
                     store(inverse, index);
                   }
                   if (return_counts) {
                     counts.store(count);
                   }
                 })

SIMCANN_OPERATOR(6, aclnnSearchSorted,
                 [](const Tensor& sequence, const Tensor& self, bool out_int32, bool right, const Tensor& sorter,
                    Tensor& out) {
                   store(out, at::searchsorted(sequence, self, out_int32, right, std::nullopt, optional(sorter)));
                 })
SIMCANN_OPERATOR(6, aclnnSearchSorteds,
                 [](const Tensor& sequence, const Scalar& self, bool out_int32, bool right, const Tensor& sorter,
                    Tensor& out) {
                   store(out, at::searchsorted(sequence, self, out_int32, right, std::nullopt, optional(sorter)));
                 })
