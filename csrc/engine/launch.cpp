#include "launch.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/copy_native.h>
#include <c10/core/CPUAllocator.h>

#include <cstring>

namespace airgraph {
namespace {

at::Tensor make_output(const c10::Storage& storage, const OwnedOutput& out) {
  auto tensor = at::detail::make_tensor<at::TensorImpl>(
      c10::Storage(storage), c10::DispatchKeySet(c10::DispatchKey::CPU),
      c10::scalarTypeToTypeMeta(out.dtype));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(out.sizes, out.strides, out.offset);
  if (out.conj) {
    tensor._set_conj(true);
  }
  if (out.neg) {
    tensor._set_neg(true);
  }
  return tensor;
}

}  // namespace

bool Launch::OutputStorage::held() const {
  // Memory that the caller resized or freed through its storage is not ours to write either.
  return caller.use_count() > 1 || caller.data() != tape.data() || caller.nbytes() != nbytes;
}

void Launch::OutputStorage::renew() {
  auto* allocator = c10::GetCPUAllocator();
  caller = c10::Storage(c10::Storage::use_byte_size_t(), nbytes, allocator->allocate(nbytes),
                        allocator, /*resizable=*/true);
  tape.unsafeGetStorageImpl()->set_data_ptr_noswap(
      at::DataPtr(caller.mutable_data(), c10::Device(c10::kCPU)));
}

size_t Launch::add_output_storage(const at::Tensor& slot) {
  OutputStorage made{slot.storage(), c10::Storage(), slot.storage().nbytes()};
  made.renew();
  storages_.push_back(std::move(made));
  return storages_.size() - 1;
}

size_t Launch::held_outputs() const {
  size_t count = 0;
  for (const auto& storage : storages_) {
    count += storage.held() ? 1 : 0;
  }
  return count;
}

size_t Launch::output_nbytes() const {
  size_t total = 0;
  for (const auto& storage : storages_) {
    total += storage.nbytes;
  }
  return total;
}

void Launch::renew_outputs() {
  for (auto& storage : storages_) {
    const bool lost = storage.caller.data() != storage.tape.data() ||
                      storage.caller.nbytes() != storage.nbytes;
    if (lost || (policy_ == LiveOutputs::preserve && storage.held())) {
      storage.renew();
    }
  }
}

void Launch::copy_input(const at::Tensor& buffer, const at::Tensor& arg) {
  if (arg.const_data_ptr() == buffer.const_data_ptr()) {
    return;
  }
  const bool plain = !arg.is_conj() && !arg.is_neg();
  if (plain && arg.strides() == buffer.strides() && buffer.is_non_overlapping_and_dense()) {
    std::memcpy(buffer.mutable_data_ptr(), arg.const_data_ptr(), buffer.nbytes());
    return;
  }
  const at::AutoDispatchBelowADInplaceOrView guard;
  if (plain) {
    auto target = buffer;
    at::native::copy_(target, arg, /*non_blocking=*/false);
  } else {
    buffer.copy_(arg);
  }
}

std::vector<at::Tensor> Launch::outputs() const {
  std::vector<at::Tensor> results;
  results.reserve(outputs_.size());
  for (const auto& out : outputs_) {
    results.push_back(make_output(storages_[out.storage].caller, out));
  }
  return results;
}

}  // namespace airgraph
