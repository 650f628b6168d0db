// The arguments of a call, borrowed: whoever calls keeps them alive, also while the interpreter goes on.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

namespace airgraph {

class Arguments {
 public:
  // null: the next argument is no tensor.
  void add(const at::Tensor* tensor) { tensors_.push_back(tensor); }

  size_t size() const { return tensors_.size(); }
  // All, in order; null where one is no tensor.
  const at::Tensor* const* begin() const { return tensors_.data(); }
  bool is_tensor(size_t index) const { return index < tensors_.size() && tensors_[index] != nullptr; }

  const at::Tensor& operator()(size_t index) const {
    TORCH_CHECK_TYPE(is_tensor(index), "argument ", index, " is missing or no tensor");
    return *tensors_[index];
  }

 private:
  c10::SmallVector<const at::Tensor*, 64> tensors_;
};

}  // namespace airgraph
