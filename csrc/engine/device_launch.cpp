#include "device_launch.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/StorageImpl.h>

#include <algorithm>

namespace airgraph {
namespace {

at::Tensor share(const at::Tensor& tensor) {
  return at::Tensor(tensor.unsafeGetTensorImpl()->shallow_copy_and_detach(/*version_counter=*/0,
                                                                          /*allow_tensor_metadata_change=*/true));
}

// Whether a tensor can be seen as bytes.
bool has_bytes(const at::Tensor& tensor) {
  return !tensor.is_conj() && !tensor.is_neg() && (tensor.dim() == 0 || tensor.stride(-1) == 1);
}

at::Tensor bytes_of(const at::Tensor& tensor) {
  return (tensor.dim() == 0 ? tensor.unsqueeze(0) : tensor).view(at::kByte);
}

}  // namespace

void DeviceLaunch::add_output(const at::Tensor& slot) {
  auto* storage = slot.storage().unsafeGetStorageImpl();
  const auto known = std::find_if(storages_.begin(), storages_.end(), [&](const Shared& shared) {
    return slots_[shared.slot].storage().unsafeGetStorageImpl() == storage;
  });
  if (known == storages_.end()) {
    storages_.push_back({slots_.size(), 1});
  } else {
    ++known->count;
  }
  slots_.push_back(share(slot));
}

void DeviceLaunch::copy(std::vector<at::Tensor>& targets, std::vector<at::Tensor>& sources) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  if (targets.size() == 1) {
    targets[0].copy_(sources[0], /*non_blocking=*/true);
    return;
  }
  const bool mixed = std::any_of(targets.begin(), targets.end(), [&](const at::Tensor& target) {
    return target.scalar_type() != targets[0].scalar_type();
  });
  if (mixed) {
    // Lists of one dtype are copied by one launch.
    for (size_t i = 0; i < targets.size(); ++i) {
      if (has_bytes(targets[i]) && has_bytes(sources[i])) {
        targets[i] = bytes_of(targets[i]);
        sources[i] = bytes_of(sources[i]);
      }
    }
  }
  if (!targets.empty()) {
    at::_foreach_copy_(targets, sources, /*non_blocking=*/true);
  }
}

std::vector<at::Tensor> DeviceLaunch::outputs() const {
  std::vector<at::Tensor> made;
  made.reserve(slots_.size());
  for (const auto& slot : slots_) {
    made.push_back(share(slot));
  }
  return made;
}

std::vector<size_t> DeviceLaunch::held_outputs() const {
  std::vector<size_t> held;
  for (const auto& shared : storages_) {
    if (slots_[shared.slot].storage().use_count() > shared.count) {
      held.push_back(shared.slot);
    }
  }
  return held;
}

void DeviceLaunch::give_away(size_t slot) {
  at::Tensor held = slots_.at(slot);
  auto* theirs = held.storage().unsafeGetStorageImpl();
  auto fresh = at::empty_strided(held.sizes(), held.strides(), held.options());
  if (held.storage_offset() != 0 || fresh.storage().nbytes() != theirs->nbytes()) {
    held = held.as_strided({static_cast<int64_t>(theirs->nbytes() / held.itemsize())}, {1}, 0);
    fresh = at::empty_like(held);
  }
  fresh.copy_(held, /*non_blocking=*/true);
  // Found before the pointers change: tensors that share a storage are known by it.
  std::vector<at::Tensor*> sharing;
  for (auto& other : slots_) {
    if (other.storage().unsafeGetStorageImpl() == theirs) {
      sharing.push_back(&other);
    }
  }
  const c10::Storage ours = fresh.storage();
  auto graph_memory = theirs->set_data_ptr(at::DataPtr());
  theirs->set_data_ptr_noswap(ours.unsafeGetStorageImpl()->set_data_ptr(std::move(graph_memory)));
  ours.unsafeGetStorageImpl()->set_nbytes(theirs->nbytes());
  for (auto* tensor : sharing) {
    tensor->unsafeGetTensorImpl()->set_storage_keep_dtype(ours);
  }
}

}  // namespace airgraph
