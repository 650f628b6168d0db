#include "tensors.h"

#include <ATen/EmptyTensor.h>
#include <c10/core/CPUAllocator.h>

#include <utility>

namespace airgraph {
namespace {

constexpr c10::DispatchKeySet kCpu(c10::DispatchKey::CPU);

at::Tensor over(const c10::Storage& storage, c10::DispatchKeySet keys, caffe2::TypeMeta dtype) {
  return at::detail::make_tensor<at::TensorImpl>(c10::Storage(storage), keys, dtype);
}

at::DataPtr unowned(uintptr_t address, c10::Device device = c10::Device(c10::kCPU)) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): an address is what it is
  return {reinterpret_cast<void*>(address), device};
}

// torch 2.11 has no way to take back what `release_data_and_set_meta_custom_data_ptr_error_msg_` has set but a private
// flag, which an explicit instantiation may name.
bool c10::StorageImpl::* throws_on_access();

template <bool c10::StorageImpl::* Flag>
struct NamesFlag {
  friend bool c10::StorageImpl::* throws_on_access() { return Flag; }
};

template struct NamesFlag<&c10::StorageImpl::throw_on_immutable_data_ptr_>;

template <typename Storage>
void allow_access(Storage* storage) {
  if constexpr (requires { storage->clear_data_ptr_access_error_msg_(); }) {
    storage->clear_data_ptr_access_error_msg_();
  } else {
    storage->*throws_on_access() = false;
  }
}

}  // namespace

at::Tensor TensorView::of(const c10::Storage& storage) const {
  auto tensor = over(storage, kCpu, c10::scalarTypeToTypeMeta(dtype));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, offset);
  if (conj) {
    tensor._set_conj(true);
  }
  if (neg) {
    tensor._set_neg(true);
  }
  return tensor;
}

size_t TensorView::nbytes() const {
  return at::detail::computeStorageNbytes(sizes, strides, c10::elementSize(dtype), offset);
}

at::Tensor unallocated(const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides, at::ScalarType dtype) {
  const auto meta = c10::scalarTypeToTypeMeta(dtype);
  const auto nbytes = at::detail::computeStorageNbytes(sizes, strides, meta.itemsize());
  const c10::Storage storage(c10::Storage::use_byte_size_t(), nbytes, unowned(0), c10::GetCPUAllocator(),
                             /*resizable=*/true);
  storage.unsafeGetStorageImpl()->release_data_and_set_meta_custom_data_ptr_error_msg_(
      "a tensor of a graph that is being captured is read: it has no values before the graph is replayed");
  auto tensor = over(storage, kCpu, meta);
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  return tensor;
}

void allocate(const at::Tensor& tensor) {
  auto* storage = tensor.storage().unsafeGetStorageImpl();
  allow_access(storage);
  storage->set_data_ptr_noswap(c10::GetCPUAllocator()->allocate(storage->nbytes()));
}

void resize_unallocated(const at::Tensor& tensor, size_t nbytes) {
  tensor.storage().unsafeGetStorageImpl()->set_nbytes(nbytes);
}

at::Tensor bytes_at(uintptr_t address, int64_t nbytes) {
  return bytes_of(c10::Storage(c10::Storage::use_byte_size_t(), nbytes, unowned(address), nullptr, /*resizable=*/false),
                  kCpu);
}

at::Tensor bytes_of(const c10::Storage& storage, c10::DispatchKeySet keys) {
  auto tensor = over(storage, keys, caffe2::TypeMeta::Make<uint8_t>());
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous({static_cast<int64_t>(storage.nbytes())});
  return tensor;
}

at::Tensor bytes_of(const at::Tensor& tensor, size_t begin, size_t nbytes) {
  auto row = over(tensor.storage(), tensor.key_set(), caffe2::TypeMeta::Make<uint8_t>());
  const auto offset = tensor.storage_offset() * static_cast<int64_t>(tensor.itemsize()) - static_cast<int64_t>(begin);
  row.unsafeGetTensorImpl()->set_sizes_contiguous({static_cast<int64_t>(nbytes)});
  row.unsafeGetTensorImpl()->set_storage_offset(offset);
  return row;
}

at::Tensor share(const at::Tensor& tensor) {
  return at::Tensor(tensor.unsafeGetTensorImpl()->shallow_copy_and_detach(/*version_counter=*/0,
                                                                          /*allow_tensor_metadata_change=*/true));
}

c10::Storage new_storage(size_t nbytes) {
  auto* allocator = c10::GetCPUAllocator();
  return {c10::Storage::use_byte_size_t(), nbytes, allocator->allocate(nbytes), allocator, /*resizable=*/true};
}

void point_at(const c10::Storage& storage, uintptr_t address) {
  storage.unsafeGetStorageImpl()->set_data_ptr_noswap(unowned(address));
}

void disown(const c10::Storage& storage, c10::Device device) {
  storage.unsafeGetStorageImpl()->set_data_ptr_noswap(at::DataPtr(storage.mutable_data(), device));
}

void point_into(const c10::Storage& storage, const void* memory, const c10::Storage& owner) {
  auto held = std::make_unique<c10::Storage>(owner);
  const auto drop = [](void* held) { delete static_cast<c10::Storage*>(held); };
  auto* address = const_cast<void*>(memory);
  storage.unsafeGetStorageImpl()->set_data_ptr_noswap(at::DataPtr(address, held.release(), drop, storage.device()));
}

bool is_sole_holder(const c10::Storage& storage) {
  // This weak reference, and the one that all strong ones are together.
  constexpr uint32_t own = 2;
  return storage.use_count() == 1 && storage.getWeakStorageImpl().weak_use_count() == own;
}

void swap_memory(const c10::Storage& theirs, const c10::Storage& ours) {
  auto memory = theirs.unsafeGetStorageImpl()->set_data_ptr(at::DataPtr());
  theirs.unsafeGetStorageImpl()->set_data_ptr_noswap(ours.unsafeGetStorageImpl()->set_data_ptr(std::move(memory)));
  ours.unsafeGetStorageImpl()->set_nbytes(theirs.nbytes());
}

bool share_storage(const at::Tensor& a, const at::Tensor& b) { return is_over(a, b.storage()); }

bool is_over(const at::Tensor& tensor, const c10::Storage& storage) {
  return tensor.storage().unsafeGetStorageImpl() == storage.unsafeGetStorageImpl();
}

void move_to(const at::Tensor& tensor, const c10::Storage& storage) {
  tensor.unsafeGetTensorImpl()->set_storage_keep_dtype(storage);
}

void count_as_written(const at::Tensor& tensor) { tensor.unsafeGetTensorImpl()->bump_version(); }

bool WeakTensor::is(const at::Tensor& tensor) const {
  return tensor_._unsafe_get_target() == impl_of(tensor) && storage_._unsafe_get_target() == storage_impl_of(tensor);
}

WriteCounter::WriteCounter(const at::Tensor& tensor)
    : count_(tensor.is_inference() ? c10::VariableVersion(0) : tensor.unsafeGetTensorImpl()->version_counter()) {}

size_t extent_of(const at::Tensor& tensor) {
  return at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), tensor.itemsize());
}

bool is_number(const at::Tensor& tensor) { return tensor.unsafeGetTensorImpl()->is_wrapped_number(); }

}  // namespace airgraph
