// SPDX-License-Identifier: Apache-2.0
// Which operators are served: all that torch has a CUDA and a CPU kernel for, but those that compute nothing.
#include "registration.h"

#include <ATen/Context.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <memory>
#include <set>
#include <string>

#include "export.h"
#include "memory.h"
#include "serve.h"

namespace simcuda {
namespace {

// These stay torch's own: they make memory, ask about it, or copy by the runtime's functions.
const std::set<std::string> kept = {
    "aten::empty",          "aten::empty_strided", "aten::resize_",       "aten::set_",
    "aten::record_stream",  "aten::is_pinned",     "aten::_pin_memory",   "aten::_local_scalar_dense",
    "aten::_resize_output_", "aten::is_set_to",    "aten::_efficientzerotensor",
    // See special.cpp.
    "aten::copy_",          "aten::_foreach_copy_", "aten::native_dropout", "aten::_fused_sdp_choice",
};

// Composed of others for CUDA, some of which only CUDA has.
const std::set<std::string> also_served = {
    "aten::convolution",
    "aten::convolution_backward",
};

bool is_view(const c10::FunctionSchema& schema) {
  for (const auto& result : schema.returns()) {
    if (const auto* alias = result.alias_info(); alias != nullptr && !alias->isWrite()) return true;
  }
  return false;
}

class Silent : public c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

void boxed(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) { serve(op, stack); }

std::size_t register_all() {
  // Torch warns of every operator that gets another kernel; that is what is meant here.
  Silent silent;
  c10::WarningUtils::WarningHandlerGuard quiet(&silent);
  static torch::Library& library =
      *new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::CUDA, __FILE__, __LINE__);
  auto& dispatcher = c10::Dispatcher::singleton();
  std::size_t served = 0;
  for (const auto& name : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findSchema(name);
    if (!op || name.getNamespace().value_or("") != "aten" || kept.contains(name.name) || is_view(op->schema())) continue;
    const bool both = op->hasKernelForDispatchKey(c10::DispatchKey::CUDA) &&
                      op->hasComputedKernelForDispatchKey(c10::DispatchKey::CPU);
    if (!both && !also_served.contains(name.name)) continue;
    library.impl(c10::toString(name).c_str(), torch::CppFunction::makeFromBoxedFunction<&boxed>());
    ++served;
  }
  register_special(library);
  register_attention(library);
  // cuDNN is not simulated: torch takes its own kernels, which are served.
  at::globalContext().setUserEnabledCuDNN(false);
  return served;
}

}  // namespace
}  // namespace simcuda

// Once a process, after `import torch`. Returns how many operators are served.
extern "C" SIMCUDA_EXPORT std::size_t simcuda_serve_operators() { return simcuda::register_all(); }

// Once a process, after torch has set up its allocator.
extern "C" SIMCUDA_EXPORT void simcuda_poison_what_is_freed() { simcuda::poison_what_is_freed(); }
