// SPDX-License-Identifier: Apache-2.0
// An operator's arguments, on the way from the call to the kernel that runs later.
#pragma once

#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>

#include <functional>
#include <optional>
#include <vector>

namespace simcuda {

// Where a CUDA tensor's elements are. It does not keep the memory: as on a device, a kernel that runs after it was freed
// reads what is there then.
struct TensorRecord {
  void* data;
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
  c10::ScalarType dtype;

  explicit TensorRecord(const at::Tensor& tensor);
  // A CPU tensor on the same memory. Throws if some of it is not allocated (any more).
  at::Tensor view() const;
};

// Every tensor in `value`, those of lists included, replaced by what `change` makes of it; devices by `device`.
c10::IValue map_tensors(const c10::IValue& value, const std::function<at::Tensor(const at::Tensor&)>& change,
                        std::optional<c10::Device> device);

// Every defined tensor in `value`.
void each_tensor(const c10::IValue& value, const std::function<void(const at::Tensor&)>& visit);

// Arguments that hold no CUDA memory and no Python object: what a kernel keeps until it runs.
class SavedArguments {
 public:
  explicit SavedArguments(c10::ArrayRef<c10::IValue> arguments);
  // As the CPU's operator takes them: CUDA tensors as views of the same memory.
  torch::jit::Stack load() const;

 private:
  std::vector<c10::IValue> arguments_;  // CUDA tensors as empty tensors that stand for a record, in order
  std::vector<TensorRecord> records_;
};

}  // namespace simcuda
