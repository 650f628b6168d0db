// SPDX-License-Identifier: Apache-2.0
#include "arguments.h"

#include <ATen/ATen.h>

#include "device.h"

namespace simcuda {
namespace {

std::size_t extent_nbytes(const TensorRecord& record) {
  int64_t last = 0;
  for (size_t i = 0; i < record.sizes.size(); ++i) {
    if (record.sizes[i] == 0) return 0;
    last += (record.sizes[i] - 1) * record.strides[i];
  }
  return static_cast<std::size_t>(last + 1) * c10::elementSize(record.dtype);
}

// A meta tensor marks the place of a record; its size in the first dimension is the record's number.
at::Tensor mark(size_t number) {
  return at::empty({static_cast<int64_t>(number)}, at::TensorOptions().device(at::kMeta));
}

// What the driver reads at the launch: numbers are passed by value. A copy also where Python's number was made a tensor for the
// call: it may belong to a Python object, which the device's thread could let go only with the GIL, and who waits for the device
// may hold that.
at::Tensor by_value(const at::Tensor& tensor) {
  auto copy = tensor.clone();
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) copy.unsafeGetTensorImpl()->set_wrapped_number(true);
  return copy;
}

}  // namespace

TensorRecord::TensorRecord(const at::Tensor& tensor)
    : data(tensor.data_ptr()),
      sizes(tensor.sizes().vec()),
      strides(tensor.strides().vec()),
      dtype(tensor.scalar_type()) {}

at::Tensor TensorRecord::view() const {
  const auto options = at::TensorOptions().dtype(dtype);
  const auto nbytes = extent_nbytes(*this);
  if (nbytes == 0) return at::empty_strided(sizes, strides, options);
  TORCH_CHECK(is_allocated(data, nbytes), "a tensor of shape ", at::IntArrayRef(sizes), " at ", data,
              " is not, or no longer, allocated on a device");
  return at::from_blob(host_view(data), sizes, strides, options);
}

c10::IValue map_tensors(const c10::IValue& value, const std::function<at::Tensor(const at::Tensor&)>& change,
                        std::optional<c10::Device> device) {
  const auto changed = [&](const at::Tensor& tensor) { return tensor.defined() ? change(tensor) : tensor; };
  if (value.isTensor()) return changed(value.toTensor());
  if (value.isTensorList()) {
    c10::List<at::Tensor> result;
    for (const at::Tensor& tensor : value.toTensorVector()) result.push_back(changed(tensor));
    return result;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> result;
    for (const std::optional<at::Tensor> tensor : value.toOptionalTensorList()) {
      result.push_back(tensor ? std::optional(changed(*tensor)) : tensor);
    }
    return result;
  }
  if (value.isDevice() && device) return *device;
  return value;
}

void each_tensor(const c10::IValue& value, const std::function<void(const at::Tensor&)>& visit) {
  map_tensors(
      value,
      [&](const at::Tensor& tensor) {
        visit(tensor);
        return tensor;
      },
      std::nullopt);
}

SavedArguments::SavedArguments(c10::ArrayRef<c10::IValue> arguments) {
  const auto save = [this](const at::Tensor& tensor) {
    if (!tensor.is_cuda()) return by_value(tensor);
    records_.emplace_back(tensor);
    return mark(records_.size() - 1);
  };
  for (const auto& argument : arguments) arguments_.push_back(map_tensors(argument, save, c10::Device(at::kCPU)));
}

torch::jit::Stack SavedArguments::load() const {
  const auto load = [this](const at::Tensor& tensor) {
    return tensor.is_meta() ? records_.at(static_cast<size_t>(tensor.size(0))).view() : tensor;
  };
  torch::jit::Stack result;
  for (const auto& argument : arguments_) result.push_back(map_tensors(argument, load, std::nullopt));
  return result;
}

}  // namespace simcuda
