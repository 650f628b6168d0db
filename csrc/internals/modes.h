// What a thread's modes make of an operator: read, and set aside.
#pragma once

#include <ATen/PythonTorchFunctionTLS.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>

#include <optional>

namespace airgraph {

// What a thread adds to an operator's dispatch keys, and takes from them, for as long as one lives.
using DispatchKeysGuard = c10::impl::ForceDispatchKeyGuard;

// Function modes and whether functions are overridden, as a number that is another for any of these. A default device
// is a function mode too.
inline int64_t function_modes() {
  const auto disabled = static_cast<int64_t>(at::impl::PythonTorchFunctionTLS::get_disabled_state());
  return at::impl::PythonTorchFunctionTLS::stack_len() << 2 | disabled;
}

// Whether dispatch modes, transforms of torch.func or torch.jit.trace see a thread's operators.
inline bool are_operators_seen() {
  constexpr c10::DispatchKeySet kObserving(
      {c10::DispatchKey::FuncTorchDynamicLayerFrontMode, c10::DispatchKey::Tracer});
  return c10::impl::TorchDispatchModeTLS::stack_len() != 0 ||
         c10::impl::tls_local_dispatch_key_set().included_.has_any(kObserving);
}

// While one lives there are no function modes, and functions are overridden as by default.
class NoFunctionModes {
 public:
  NoFunctionModes() {
    if (Modes::stack_len() != 0 || Modes::get_disabled_state() != at::impl::TorchFunctionDisabledState::ENABLED) {
      before_ = Modes::get_state();
      Modes::set_state(Modes());
    }
  }
  ~NoFunctionModes() {
    if (before_) {
      Modes::set_state(*before_);
    }
  }
  NoFunctionModes(const NoFunctionModes&) = delete;
  NoFunctionModes& operator=(const NoFunctionModes&) = delete;

 private:
  using Modes = at::impl::PythonTorchFunctionTLS;
  std::optional<Modes> before_;
};

}  // namespace airgraph
