// SPDX-License-Identifier: Apache-2.0
// Random numbers: which, is said by the philox state that the call takes from the CUDA generator, and that a captured
// kernel reads anew in each replay.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <ATen/cuda/PhiloxCudaState.h>

#include <optional>

namespace simcuda {

class RandomState {
 public:
  // Takes the numbers that the call needs from its generator, if it is an operator that draws some.
  static RandomState of(const c10::FunctionSchema& schema, c10::ArrayRef<c10::IValue> arguments, c10::Device device);

  // When the kernel runs: a CPU generator in the place of the CUDA one.
  void into(torch::jit::Stack& arguments) const;
  // A CPU generator in the state that the kernel has to draw from.
  at::Generator generator() const;

  static at::PhiloxCudaState take(const std::optional<at::Generator>& generator, c10::Device device, uint64_t numel);

 private:
  std::optional<size_t> argument_;
  at::PhiloxCudaState state_;
};

}  // namespace simcuda
