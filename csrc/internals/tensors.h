// Tensors and storages made and pointed by hand: all that is used of c10's own parts stands here.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

namespace airgraph {

// How a tensor sees its storage; strides and offset in elements.
struct TensorView {
  at::ScalarType dtype;
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
  int64_t offset = 0;
  bool conj = false;
  bool neg = false;

  // A tensor over the storage, which must be large enough.
  at::Tensor of(const c10::Storage& storage) const;

  // How large a storage must be.
  size_t nbytes() const;
};

// A tensor of full extent without memory: views of it are made as of any other; reading or writing it throws, from
// whatever thread and by whatever code that asks the tensor for its memory.
at::Tensor unallocated(const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides, at::ScalarType dtype);

// Gives an unallocated tensor's storage memory of its own; views of it follow.
void allocate(const at::Tensor& tensor);

// Another size for the memory that an unallocated tensor is to have.
void resize_unallocated(const at::Tensor& tensor, size_t nbytes);

// A one-dimensional uint8 tensor over memory of the CPU that somebody else keeps alive.
at::Tensor bytes_at(uintptr_t address, int64_t nbytes);

// All of a storage as one row of bytes; unlike `set_()` it does not look at the memory.
at::Tensor bytes_of(const c10::Storage& storage, c10::DispatchKeySet keys);

// `nbytes` of a tensor's memory as one row, from `begin` bytes before its first element on.
at::Tensor bytes_of(const at::Tensor& tensor, size_t begin, size_t nbytes);

// Another tensor of the same storage, form and device, without history. An argument's views are not its own.
at::Tensor share(const at::Tensor& tensor);

// A storage of the CPU with memory of its own.
c10::Storage new_storage(size_t nbytes);

// Points a storage that owns nothing, and so all tensors over it, at another address; null: at none.
void point_at(const c10::Storage& storage, uintptr_t address);

// Drops what owns a storage's memory, which stays where it is.
void disown(const c10::Storage& storage, c10::Device device);

// Points a storage at memory of another, which lives as long as it is pointed at.
void point_into(const c10::Storage& storage, const void* memory, const c10::Storage& owner);

// Whether nobody else holds this storage, or could come to hold it.
bool is_sole_holder(const c10::Storage& storage);

// Exchanges the memory of two storages of one size, `theirs` and a fresh `ours`.
void swap_memory(const c10::Storage& theirs, const c10::Storage& ours);

// Whether two tensors lie in one storage.
bool share_storage(const at::Tensor& a, const at::Tensor& b);

// Whether a tensor lies in this storage.
bool is_over(const at::Tensor& tensor, const c10::Storage& storage);

// Puts a tensor over another storage of its size.
void move_to(const at::Tensor& tensor, const c10::Storage& storage);

// Where a tensor's first element lies, as `const_data_ptr()` says; inline, since each call asks it of every argument.
// The tensor has a storage.
inline const void* address_of(const at::Tensor& tensor) {
  const auto* impl = tensor.unsafeGetTensorImpl();
  if (impl->numel() == 0) {
    return nullptr;
  }
  const auto* begin = static_cast<const char*>(impl->unsafe_storage().unsafeGetStorageImpl()->data());
  return begin + impl->storage_offset() * static_cast<int64_t>(impl->dtype().itemsize());
}

// Tells autograd that a tensor was written, as an operator that writes in place does.
void count_as_written(const at::Tensor& tensor);

// The same for a tensor that is not held: all that share its memory as views of one another share it.
class WriteCounter {
 public:
  explicit WriteCounter(const at::Tensor& tensor);
  void add() { count_.bump(); }

 private:
  c10::VariableVersion count_;
};

// How many bytes lie from a tensor's first element to the end of its last.
size_t extent_of(const at::Tensor& tensor);

// By which a tensor is known in C++; its form may be read through it.
inline const at::TensorImpl* impl_of(const at::Tensor& tensor) { return tensor.unsafeGetTensorImpl(); }
constexpr size_t kImplNbytes = sizeof(at::TensorImpl);

// A tensor and its storage by who they are, held so that none which is made later is taken for them, and no longer.
class WeakTensor {
 public:
  explicit WeakTensor(const at::Tensor& tensor)
      : tensor_(tensor.getIntrusivePtr()), storage_(tensor.storage().getWeakStorageImpl()) {}

  // Whether this is the tensor, over the storage that it had.
  bool is(const at::Tensor& tensor) const;

 private:
  c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> tensor_;
  c10::weak_intrusive_ptr<c10::StorageImpl> storage_;
};

// What holds the address of a tensor's memory, which may be read; null where the tensor has no storage.
inline const void* storage_impl_of(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
}

// Whether a tensor stands for a Python number.
bool is_number(const at::Tensor& tensor);

}  // namespace airgraph
