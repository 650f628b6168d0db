// All that a tensor is but its values, to be compared at once with what it was.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/variable.h>

#include <array>
#include <cstring>
#include <vector>

namespace airgraph {

struct Gradient {
  bool requires_grad, is_leaf;
};

// As `requires_grad()` and `is_leaf()` answer, whose calls cost more than the answers: each call asks of each weight.
inline Gradient gradient_of(const at::Tensor& tensor) {
  const auto* history = torch::autograd::impl::get_autograd_meta(tensor);
  const bool is_leaf = history == nullptr || history->grad_fn_ == nullptr;
  return {history != nullptr && (history->requires_grad_ || !is_leaf), is_leaf};
}

// Where a tensor is still of its state, whatever was found to hold of its sizes, strides, dtype, device, dispatch keys,
// memory and history holds still; where it is not, it may hold all the same.
// Method: a tensor's own fields lie together, between who holds it and what a class derived from it adds. What they
// point to is compared by itself.
class TensorState {
 public:
  explicit TensorState(const at::Tensor& tensor)
      : impl_(tensor.unsafeGetTensorImpl()),
        storage_(impl_->has_storage() ? impl_->unsafe_storage().unsafeGetStorageImpl() : nullptr),
        history_(torch::autograd::impl::get_autograd_meta(tensor)) {
    std::memcpy(fields_.data(), fields(), sizeof(fields_));
    if (storage_ != nullptr) {
      memory_ = storage_->data();
      nbytes_ = storage_->nbytes();
    }
    if (history_ != nullptr) {
      requires_grad_ = history_->requires_grad_;
      maker_ = history_->grad_fn_.get();
    }
    if (has_form_elsewhere()) {
      form_ = form();
    }
  }

  // The variable that the state was taken of may have been given another tensor's contents since.
  bool is_of(const at::Tensor& tensor) const {
    return tensor.unsafeGetTensorImpl() == impl_ && std::memcmp(fields_.data(), fields(), sizeof(fields_)) == 0 &&
           (storage_ == nullptr || (storage_->data() == memory_ && storage_->nbytes() == nbytes_)) &&
           (history_ == nullptr ||
            (history_->requires_grad_ == requires_grad_ && history_->grad_fn_.get() == maker_)) &&
           (!has_form_elsewhere() || form() == form_);
  }

  // Asks for what `is_of` reads.
  void fetch_ahead() const {
    constexpr size_t kLine = 64;
    for (size_t line = 0; line < sizeof(at::TensorImpl); line += kLine) {
      __builtin_prefetch(reinterpret_cast<const char*>(impl_) + line);
    }
    __builtin_prefetch(storage_);
    __builtin_prefetch(history_);
  }

 private:
  static constexpr size_t kBegin = sizeof(c10::intrusive_ptr_target);
  static_assert(sizeof(at::TensorImpl) > kBegin);

  // Few sizes and strides are fields; more of them lie elsewhere.
  bool has_form_elsewhere() const { return impl_->dim() > C10_SIZES_AND_STRIDES_MAX_INLINE_SIZE; }
  std::vector<int64_t> form() const {
    auto both = impl_->sizes().vec();
    both.insert(both.end(), impl_->strides().begin(), impl_->strides().end());
    return both;
  }

  const char* fields() const { return reinterpret_cast<const char*>(impl_) + kBegin; }

  const at::TensorImpl* impl_;
  // Both are among the fields: where these are the same, so are they.
  const c10::StorageImpl* storage_;
  const torch::autograd::AutogradMeta* history_;
  std::array<char, sizeof(at::TensorImpl) - kBegin> fields_{};
  const void* memory_ = nullptr;
  size_t nbytes_ = 0;
  bool requires_grad_ = false;
  const void* maker_ = nullptr;
  std::vector<int64_t> form_;
};

}  // namespace airgraph
