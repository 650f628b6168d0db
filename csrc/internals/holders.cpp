#include "holders.h"

#include <map>
#include <set>

namespace airgraph {

std::vector<bool> held_by_others(const std::vector<at::Tensor>& tensors) {
  std::map<const c10::StorageImpl*, std::set<const c10::TensorImpl*>> holders;
  // A view holds what it is a view of, which then holds the memory too.
  std::map<const c10::TensorImpl*, size_t> views;
  std::map<const c10::TensorImpl*, size_t> times;
  for (const auto& tensor : tensors) {
    ++times[tensor.unsafeGetTensorImpl()];
    auto& known = holders[tensor.storage().unsafeGetStorageImpl()];
    if (known.insert(tensor.unsafeGetTensorImpl()).second && tensor.is_view()) {
      const auto* base = tensor._base().unsafeGetTensorImpl();
      ++views[base];
      known.insert(base);
    }
  }
  std::vector<bool> held;
  for (const auto& tensor : tensors) {
    const auto& known = holders.at(tensor.storage().unsafeGetStorageImpl());
    bool base_is_held = false;
    if (tensor.is_view()) {
      const auto& base = tensor._base();
      const auto* key = base.unsafeGetTensorImpl();
      // Its object of Python's is one more; it may be one of the tensors itself.
      const size_t own = 1 + (times.count(key) != 0 ? times.at(key) : 0);
      base_is_held = base.use_count() > views.at(key) + own;
    }
    held.push_back(base_is_held || tensor.storage().use_count() > known.size());
  }
  return held;
}

}  // namespace airgraph
