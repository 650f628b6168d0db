// SPDX-License-Identifier: Apache-2.0
// Serving an operator: its outputs are made at the call, its CPU kernel runs later, on the current stream.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <functional>

namespace simcuda {

using Stack = torch::jit::Stack;

// The boxed kernel of every operator that is served.
void serve(const c10::OperatorHandle& op, Stack* stack);

// Queue `kernel` on the current stream of the current device; it runs without autograd, on one thread.
void launch_here(const std::string& name, std::function<void()> kernel);


}  // namespace simcuda
