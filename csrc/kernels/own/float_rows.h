// Rows of a tensor of floats, read and written in pieces.
#pragma once

#include <ATen/core/Tensor.h>

#include "elements_of.h"
#include "overlaps.h"
#include "row_forms.h"

namespace airgraph {

// Calls a generic lambda with a null pointer to the type of such numbers.
template <class F>
void with_type(at::ScalarType dtype, F&& visit) {
  switch (dtype) {
    case at::kBFloat16:
      return visit(static_cast<at::BFloat16*>(nullptr));
    case at::kHalf:
      return visit(static_cast<at::Half*>(nullptr));
    default:
      return visit(static_cast<float*>(nullptr));
  }
}

// A tensor of floats [batch, rows, n] or [rows, n], of which pieces of rows are read or written. Strides in bytes.
class Rows {
 public:
  Rows() = default;
  // Of a tensor that is one matrix, or several.
  explicit Rows(at::Tensor tensor) : tensor_(std::move(tensor)) {
    dtype_ = tensor_.scalar_type();
    nbytes_ = static_cast<int64_t>(tensor_.element_size());
    batch_stride_ = tensor_.dim() == 2 ? 0 : tensor_.stride(0) * nbytes_;
    row_stride_ = tensor_.stride(-2) * nbytes_;
    extent_nbytes_ = own::extent_nbytes(tensor_);
    step_ = tensor_.size(-1) == 1 ? 1 : tensor_.stride(-1);
    forms_ = &own::row_forms(own::element_of(dtype_).value_or(own::Element::f32));
  }

  // Whether it is the same elements.
  bool is_same(const Rows& other) const {
    return tensor_.is_alias_of(other.tensor_) && tensor_.storage_offset() == other.tensor_.storage_offset() &&
           dtype_ == other.dtype_ && tensor_.sizes() == other.tensor_.sizes() &&
           tensor_.strides() == other.tensor_.strides();
  }

  bool defined() const { return tensor_.defined(); }
  bool is_dense() const { return step_ == 1; }
  bool is_one_row() const { return row_stride_ == 0; }
  int64_t batch_step() const { return batch_stride_; }
  int64_t row_stride() const { return row_stride_ / nbytes_; }

  // At the begin of a replay, on the thread that replays: where it is read, or written.
  void find_to_read() {
    data_ = tensor_.defined() ? static_cast<char*>(const_cast<void*>(tensor_.const_data_ptr())) : nullptr;
  }
  void find_to_write() { data_ = static_cast<char*>(tensor_.mutable_data_ptr()); }

  // Once it is found.
  own::Extent extent() const { return {data_, data_ + extent_nbytes_}; }

  // Asks for what `read` is going to read.
  void prefetch(int64_t matrix, int64_t row, int64_t begin, int64_t count) const {
    constexpr int64_t kLine = 64;
    const char* from = at(matrix, row, begin);
    for (int64_t i = 0; is_dense() && i < count * nbytes_; i += kLine) {
      __builtin_prefetch(from + i);
    }
  }

  char* at(int64_t matrix, int64_t row, int64_t begin) const {
    return data_ + matrix * batch_stride_ + row * row_stride_ + begin * step_ * nbytes_;
  }

  // `count` numbers of a row from `begin` on, as floats: where they lie, or in `buffer`.
  const float* read(int64_t matrix, int64_t row, int64_t begin, int64_t count, float* buffer) const {
    const char* from = at(matrix, row, begin);
    if (is_dense() && dtype_ == at::kFloat) {
      return reinterpret_cast<const float*>(from);
    }
    if (is_dense()) {
      forms_->read(from, count, buffer);
    } else {
      with_type(dtype_, [&]<class T>(const T*) {
        for (int64_t i = 0; i < count; ++i) {
          buffer[i] = static_cast<float>(reinterpret_cast<const T*>(from)[i * step_]);
        }
      });
    }
    return buffer;
  }

  void write(int64_t matrix, int64_t row, int64_t begin, int64_t count, const float* sums, const float* scale,
             const float* bias) const {
    char* to = at(matrix, row, begin);
    if (is_dense()) {
      return forms_->write(sums, scale, bias, count, to);
    }
    with_type(dtype_, [&]<class T>(const T*) {
      for (int64_t i = 0; i < count; ++i) {
        const float sum = scale == nullptr ? sums[i] : sums[i] * scale[i];
        reinterpret_cast<T*>(to)[i * step_] = static_cast<T>(bias == nullptr ? sum : sum + bias[i]);
      }
    });
  }

 private:
  at::Tensor tensor_;
  at::ScalarType dtype_ = at::kFloat;
  int64_t nbytes_ = 1, batch_stride_ = 0, row_stride_ = 0, extent_nbytes_ = 0;
  int64_t step_ = 1;  // in elements
  const own::RowForms* forms_ = nullptr;
  char* data_ = nullptr;
};

}  // namespace airgraph
