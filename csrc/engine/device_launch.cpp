#include "device_launch.h"

#include <ATen/ops/_foreach_copy.h>
#include <c10/core/StorageImpl.h>

#include <algorithm>

namespace airgraph {
namespace {

at::Tensor share(const at::Tensor& tensor) {
  return at::Tensor(tensor.unsafeGetTensorImpl()->shallow_copy_and_detach(/*version_counter=*/0,
                                                                          /*allow_tensor_metadata_change=*/true));
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

void DeviceLaunch::copy_inputs(c10::ArrayRef<at::Tensor> args) const {
  std::vector<at::Tensor> targets;
  std::vector<at::Tensor> sources;
  for (const auto& input : inputs.copied()) {
    const auto& arg = args[input.index];
    if (arg.const_data_ptr() != input.buffer.const_data_ptr()) {
      targets.push_back(input.buffer);
      sources.push_back(arg);
    }
  }
  if (targets.size() == 1) {
    targets[0].copy_(sources[0], /*non_blocking=*/true);
  } else if (!targets.empty()) {
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

void DeviceLaunch::give_away(size_t slot, const at::Tensor& fresh) {
  auto* theirs = slots_.at(slot).storage().unsafeGetStorageImpl();
  const c10::Storage ours = fresh.storage();
  TORCH_CHECK(ours.nbytes() >= theirs->nbytes(), "the memory for a held output is too small");
  // Found before the pointers change: tensors that share a storage are known by it.
  std::vector<size_t> sharing;
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].storage().unsafeGetStorageImpl() == theirs) {
      sharing.push_back(i);
    }
  }
  auto graph_memory = theirs->set_data_ptr(at::DataPtr());
  theirs->set_data_ptr_noswap(ours.unsafeGetStorageImpl()->set_data_ptr(std::move(graph_memory)));
  ours.unsafeGetStorageImpl()->set_nbytes(theirs->nbytes());
  for (const size_t i : sharing) {
    slots_[i].unsafeGetTensorImpl()->set_storage_keep_dtype(ours);
  }
}

}  // namespace airgraph
