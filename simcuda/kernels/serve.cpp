// SPDX-License-Identifier: Apache-2.0
#include "serve.h"

#include <ATen/ATen.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/native/Resize.h>
#include <c10/core/DeviceGuard.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

#include <optional>
#include <stdexcept>
#include <string_view>

#include "arguments.h"
#include "device.h"
#include "random.h"
#include "workspace.h"

namespace simcuda {
namespace {

using Arguments = c10::ArrayRef<c10::IValue>;

c10::Device device_of(Arguments arguments) {
  std::optional<c10::Device> found;
  std::optional<c10::Device> asked_for;
  for (const auto& argument : arguments) {
    each_tensor(argument, [&](const at::Tensor& tensor) {
      if (tensor.is_cuda() && !found) found = tensor.device();
    });
    if (argument.isDevice()) asked_for = argument.toDevice();
  }
  const auto device = found ? *found : asked_for.value_or(c10::Device(at::kCUDA));
  return device.has_index() ? device : c10::Device(at::kCUDA, c10::cuda::current_device());
}

// What the operator returns, without its elements; nothing where only running it tells.
std::optional<Stack> outcome(const c10::OperatorHandle& op, Arguments arguments) {
  for (const auto& result : op.schema().returns()) {
    const auto type = result.type();
    const bool tensors = type->isSubtypeOf(*c10::TensorType::get()) ||
                         type->isSubtypeOf(*c10::ListType::ofTensors());
    if (!tensors) return std::nullopt;
  }
  Stack stack;
  const auto as_meta = [](const at::Tensor& tensor) {
    if (!tensor.is_cuda()) return tensor;
    return at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(at::kMeta));
  };
  for (const auto& argument : arguments) stack.push_back(map_tensors(argument, as_meta, c10::Device(at::kMeta)));
  try {
    op.callBoxed(&stack);
  } catch (const c10::NotImplementedError&) {
    return std::nullopt;
  } catch (const std::exception& error) {
    // Raised in Python, where shapes that depend on the data are refused.
    if (!std::string_view(error.what()).starts_with("NotImplementedError")) throw;
    return std::nullopt;
  }
  return stack;
}

// The argument that the operator returns under this alias (`a!`), and its number.
std::optional<size_t> written_argument(const c10::FunctionSchema& schema, const c10::Argument& result) {
  const auto* alias = result.alias_info();
  if (alias == nullptr || !alias->isWrite()) return std::nullopt;
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    const auto* other = schema.arguments()[i].alias_info();
    if (other != nullptr && other->beforeSets() == alias->beforeSets()) return i;
  }
  return std::nullopt;
}

// What torch refuses at the call and not in the kernel, and does not ask of tensors without memory.
void check_overlaps(const c10::FunctionSchema& schema, Arguments arguments) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    const auto* alias = schema.arguments()[i].alias_info();
    if (alias == nullptr || !alias->isWrite()) continue;
    each_tensor(arguments[i], [&](const at::Tensor& written) {
      at::assert_no_internal_overlap(written);
      for (size_t j = 0; j < arguments.size(); ++j) {
        if (j == i) continue;
        each_tensor(arguments[j], [&](const at::Tensor& read) { at::assert_no_partial_overlap(written, read); });
      }
    });
  }
}

at::Tensor made_like(const at::Tensor& meta, c10::Device device) {
  return meta.defined() ? at::empty_strided(meta.sizes(), meta.strides(), meta.options().device(device)) : meta;
}

struct Made {
  Stack returned;                    // what the call returns
  std::vector<TensorRecord> stored;  // memory of the results that are new
  std::vector<bool> is_new;          // for each tensor that the operator returns, those of lists one after the other
};

Made make_outputs(const c10::FunctionSchema& schema, Arguments arguments, const Stack& outcome, c10::Device device) {
  Made made;
  const auto make = [&](const at::Tensor& meta) {
    auto tensor = made_like(meta, device);
    made.is_new.push_back(tensor.defined());
    if (tensor.defined()) made.stored.emplace_back(tensor);
    return tensor;
  };
  for (size_t i = 0; i < schema.returns().size(); ++i) {
    if (const auto written = written_argument(schema, schema.returns()[i])) {
      const auto& argument = arguments[*written];
      // `out` may be of another size at the call.
      if (argument.isTensor() && outcome[i].isTensor() && argument.toTensor().sizes() != outcome[i].toTensor().sizes()) {
        at::native::resize_output(argument.toTensor(), outcome[i].toTensor().sizes());
      }
      made.returned.push_back(argument);
      each_tensor(argument, [&](const at::Tensor&) { made.is_new.push_back(false); });
      continue;
    }
    if (outcome[i].isTensor()) {
      made.returned.emplace_back(make(outcome[i].toTensor()));
      continue;
    }
    c10::List<at::Tensor> list;
    for (const at::Tensor& meta : outcome[i].toTensorVector()) list.push_back(make(meta));
    made.returned.emplace_back(list);
  }
  return made;
}

std::vector<at::Tensor> tensors_of(const Stack& stack) {
  std::vector<at::Tensor> all;
  for (const auto& value : stack) {
    if (value.isTensor()) {
      all.push_back(value.toTensor());
    } else if (value.isTensorList()) {
      for (const at::Tensor& tensor : value.toTensorVector()) all.push_back(tensor);
    }
  }
  return all;
}

void store_new(const std::vector<TensorRecord>& targets, const std::vector<bool>& is_new, const Stack& results) {
  const auto all = tensors_of(results);
  TORCH_CHECK(all.size() == is_new.size(), "the kernel returned ", all.size(), " tensors, expected ", is_new.size());
  size_t next = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    if (!is_new[i]) continue;
    const auto target = targets.at(next++).view();
    TORCH_CHECK(target.sizes() == all[i].sizes(), "the result has shape ", all[i].sizes(), ", expected ",
                target.sizes());
    target.copy_(all[i]);
  }
}

// Whether `index_put` fills in one value where a mask says, and takes it from the host as it is.
bool fills_by_mask(Arguments arguments) {
  size_t indices = 0, masks = 0;
  each_tensor(arguments[1], [&](const at::Tensor& index) {
    if (!index.defined()) return;
    ++indices;
    masks += index.scalar_type() == at::kBool || index.scalar_type() == at::kByte;
  });
  const auto& values = arguments[2].toTensor();
  return indices == 1 && masks == 1 && !arguments[3].toBool() && values.numel() == 1 && values.is_cpu();
}

// The arguments as the kernels of the device have them, which copy some from the host: no capture takes that.
Stack brought_to_device(const std::string& name, Arguments arguments, c10::Device device) {
  const bool puts = name == "aten::_index_put_impl_";
  Stack brought(arguments.begin(), arguments.end());
  if (!puts && name != "aten::index" && name != "aten::where") return brought;
  for (size_t i = 0; i < brought.size(); ++i) {
    if (puts && i == 2 && fills_by_mask(arguments)) continue;
    brought[i] = map_tensors(
        brought[i], [&](const at::Tensor& tensor) { return tensor.is_cpu() ? tensor.to(device) : tensor; },
        std::nullopt);
  }
  return brought;
}

// What a kernel of the device would do with the host waiting for it: results whose shape, or that themselves, the host
// has to know.
void run_now(const c10::OperatorHandle& op, Arguments arguments, c10::Device device, Stack* stack) {
  const auto stream = c10::cuda::getCurrentCUDAStream(device.index());
  C10_CUDA_CHECK(cudaStreamSynchronize(stream));
  auto call = SavedArguments(arguments).load();
  op.callBoxed(&call);
  const auto& returns = op.schema().returns();
  for (size_t i = 0; i < returns.size(); ++i) {
    if (const auto written = written_argument(op.schema(), returns[i])) {
      call[i] = arguments[*written];
    } else {
      call[i] = map_tensors(
          call[i],
          [&](const at::Tensor& result) {
            auto made = made_like(result, device);
            TensorRecord(made).view().copy_(result);
            return made;
          },
          std::nullopt);
    }
  }
  torch::jit::drop(*stack, arguments.size());
  for (auto& value : call) stack->push_back(std::move(value));
}

}  // namespace

void launch_here(const std::string& name, std::function<void()> kernel) {
  const auto stream = c10::cuda::getCurrentCUDAStream();
  auto run = [kernel = std::move(kernel)] {
    at::AutoDispatchBelowADInplaceOrView no_autograd;
    c10::ParallelGuard one_thread(true);
    try {
      kernel();
    } catch (const c10::Error& error) {
      throw std::runtime_error(error.what_without_backtrace());
    }
  };
  C10_CUDA_CHECK(static_cast<cudaError_t>(launch(stream.stream(), name, std::move(run))));
}

void serve(const c10::OperatorHandle& op, Stack* stack) {
  const auto& schema = op.schema();
  const auto count = schema.arguments().size();
  const Stack given(stack->end() - static_cast<std::ptrdiff_t>(count), stack->end());
  const auto device = device_of(given);
  const c10::DeviceGuard guard(device);
  at::AutoDispatchBelowADInplaceOrView no_autograd;
  const auto held = brought_to_device(schema.name(), given, device);
  const Arguments arguments(held);

  const auto result = outcome(op, arguments);
  if (!result) return run_now(op, arguments, device, stack);

  check_overlaps(schema, arguments);
  auto made = make_outputs(schema, arguments, *result, device);
  const auto random = RandomState::of(schema, arguments, device);
  const auto workspace = Workspace::of(schema);
  launch_here(schema.name(), [op, saved = SavedArguments(arguments), stored = std::move(made.stored),
                              is_new = std::move(made.is_new), random, workspace] {
    const auto scribbled = workspace.scribble();
    auto call = saved.load();
    random.into(call);
    op.callBoxed(&call);
    store_new(stored, is_new, call);
    workspace.check(scribbled);
  });
  torch::jit::drop(*stack, count);
  for (auto& value : made.returned) stack->push_back(std::move(value));
}

}  // namespace simcuda
