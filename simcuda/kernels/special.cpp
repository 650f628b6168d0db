// SPDX-License-Identifier: Apache-2.0
// Operators that need more than their CPU kernel.
#include <ATen/ATen.h>
#include <ATen/NativeFunctions.h>
#include <ATen/native/ForeachUtils.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include "arguments.h"
#include "random.h"
#include "registration.h"
#include "serve.h"

namespace simcuda {
namespace {

// Between a device and the host, and between devices, torch copies by the runtime's functions.
at::Tensor& copy_(at::Tensor& self, const at::Tensor& source, bool non_blocking) {
  if (self.device() != source.device() || self.numel() == 0) return at::native::copy_(self, source, non_blocking);
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::copy_", "");
  Stack stack{self, source, non_blocking};
  serve(op, &stack);
  return self;
}

// One launch where the real one makes one, else one for each.
void foreach_copy_(at::TensorList self, at::TensorList source, bool non_blocking) {
  at::native::check_foreach_api_restrictions(self, source);
  bool one_launch = at::native::can_use_fast_route(self, source, /*does_op_promote_integer_inputs_to_float=*/false);
  for (size_t i = 0; one_launch && i < self.size(); ++i) one_launch = source[i].device() == self[i].device();
  if (!one_launch) {
    for (size_t i = 0; i < self.size(); ++i) self[i].copy_(source[i], non_blocking);
    return;
  }
  const c10::DeviceGuard guard(self[0].device());
  std::vector<TensorRecord> targets(self.begin(), self.end());
  std::vector<TensorRecord> sources(source.begin(), source.end());
  launch_here("aten::_foreach_copy_", [targets = std::move(targets), sources = std::move(sources)] {
    for (size_t i = 0; i < targets.size(); ++i) targets[i].view().copy_(sources[i].view());
  });
}

std::tuple<at::Tensor, at::Tensor> native_dropout(const at::Tensor& input, double p, std::optional<bool> train) {
  if (!train.value_or(true) || p == 0) {
    return {input.clone(), at::ones_like(input, input.options().dtype(at::kBool))};
  }
  const auto mask = at::empty_like(input, input.options().dtype(at::kBool)).bernoulli_(1 - p);
  const auto scale = p == 1 ? 0.0 : 1.0 / (1.0 - p);
  return {input * mask * scale, mask};
}

}  // namespace

void register_special(torch::Library& library) {
  library.impl("copy_", copy_);
  library.impl("_foreach_copy_", foreach_copy_);
  library.impl("native_dropout", native_dropout);
}

}  // namespace simcuda
