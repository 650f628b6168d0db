#include "launch.h"

#include <ATen/ops/copy_native.h>
#include <c10/core/CPUAllocator.h>

#include <cstring>

#include "guard.h"

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

// Memory that the caller resized or freed through its storage is not ours to write; after `release` there is none.
bool Launch::OutputStorage::lost() const {
  return !caller || caller.data() != tape.data() || caller.nbytes() != nbytes;
}

bool Launch::OutputStorage::held() const { return caller && caller.use_count() > 1; }

void Launch::OutputStorage::renew() {
  auto* allocator = c10::GetCPUAllocator();
  caller = c10::Storage(c10::Storage::use_byte_size_t(), nbytes, allocator->allocate(nbytes),
                        allocator, /*resizable=*/true);
  tape.unsafeGetStorageImpl()->set_data_ptr_noswap(
      at::DataPtr(caller.mutable_data(), c10::Device(c10::kCPU)));
}

void Launch::OutputStorage::release() {
  tape.unsafeGetStorageImpl()->set_data_ptr_noswap(at::DataPtr(nullptr, c10::Device(c10::kCPU)));
  caller = c10::Storage();
}

Launch::~Launch() {
  if (neighbours_->last == this) {
    neighbours_->last = nullptr;
  }
}

size_t Launch::add_output_storage(const at::Tensor& slot) {
  storages_.push_back({slot.storage(), c10::Storage(), slot.storage().nbytes()});
  return storages_.size() - 1;
}

void Launch::take_turn() {
  if (neighbours_->last != nullptr && neighbours_->last != this) {
    for (auto& storage : neighbours_->last->storages_) {
      storage.release();
    }
  }
  neighbours_->last = this;
}

size_t Launch::held_outputs() const {
  return neighbours_->last == nullptr ? 0 : neighbours_->last->own_held_outputs();
}

size_t Launch::own_held_outputs() const {
  size_t count = 0;
  for (const auto& storage : storages_) {
    count += storage.held() ? 1 : 0;
  }
  return count;
}

std::vector<at::Tensor> Launch::blank() {
  renew_outputs();
  for (auto& storage : storages_) {
    if (storage.nbytes != 0) {
      std::memset(storage.caller.mutable_data(), 0, storage.nbytes);
    }
  }
  return outputs();
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
    if (storage.lost() || (policy_ == LiveOutputs::preserve && storage.held())) {
      storage.renew();
    }
  }
}

void Launch::point(const c10::Storage& tape, uintptr_t address) {
  tape.unsafeGetStorageImpl()->set_data_ptr_noswap(
      // NOLINTNEXTLINE(performance-no-int-to-ptr): an address is what it is
      at::DataPtr(reinterpret_cast<void*>(address), c10::Device(c10::kCPU)));
}

void Launch::copy_input(const CopiedInput& input, const at::Tensor& arg) {
  const auto& buffer = input.buffer;
  const bool is_buffer = arg.const_data_ptr() == buffer.const_data_ptr();
  if (input.is_block(arg)) {
    if (!is_buffer) {
      std::memcpy(static_cast<char*>(buffer.mutable_data_ptr()) - input.block_begin,
                  static_cast<const char*>(arg.const_data_ptr()) - input.block_begin, input.block_nbytes);
    }
    return;
  }
  const ReplayGuard guard;
  // The buffer itself may be seen in another way.
  const auto source = is_buffer ? arg.clone() : arg;
  if (!arg.is_conj() && !arg.is_neg()) {
    auto target = buffer;
    at::native::copy_(target, source, /*non_blocking=*/false);
  } else {
    buffer.copy_(source);
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
