// SPDX-License-Identifier: Apache-2.0
#include "random.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Generator.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>

#include <algorithm>
#include <mutex>

#include "arguments.h"
#include "device.h"
#include "simdevice/engine/schedule.h"

namespace simcuda {
namespace {

uint64_t read_number(const int64_t* device) {
  TORCH_CHECK(is_allocated(device, sizeof(int64_t)), "the generator's state of a graph is not allocated any more");
  return static_cast<uint64_t>(*static_cast<const int64_t*>(host_view(device)));
}

}  // namespace

at::PhiloxCudaState RandomState::take(const std::optional<at::Generator>& generator, c10::Device device,
                                      uint64_t numel) {
  const auto& known = at::cuda::detail::getDefaultCUDAGenerator(device.index());
  auto* source = at::get_generator_or_default<at::CUDAGeneratorImpl>(generator, known);
  std::lock_guard lock(source->mutex_);
  // A multiple of four, as the kernels ask for it.
  return source->philox_cuda_state(4 * std::max<uint64_t>(1, (numel + 3) / 4));
}

RandomState RandomState::of(const c10::FunctionSchema& schema, c10::ArrayRef<c10::IValue> arguments,
                            c10::Device device) {
  RandomState result;
  uint64_t numel = 1;
  for (size_t i = 0; i < arguments.size(); ++i) {
    each_tensor(arguments[i], [&](const at::Tensor& tensor) {
      numel = std::max(numel, static_cast<uint64_t>(tensor.numel()));
    });
    if (schema.arguments()[i].name() == "generator") result.argument_ = i;
  }
  if (!result.argument_) return result;
  const auto& argument = arguments[*result.argument_];
  result.state_ = take(argument.isNone() ? std::nullopt : std::optional(argument.toGenerator()), device, numel);
  return result;
}

at::Generator RandomState::generator() const {
  const auto seed = state_.captured_ ? read_number(state_.seed_.ptr) : state_.seed_.val;
  const auto offset = state_.captured_ ? read_number(state_.offset_.ptr) + state_.offset_intragraph_ : state_.offset_.val;
  return at::detail::createCPUGenerator(simdevice::mix(seed, offset));
}

void RandomState::into(torch::jit::Stack& arguments) const {
  if (argument_) arguments.at(*argument_) = generator();
}

}  // namespace simcuda
