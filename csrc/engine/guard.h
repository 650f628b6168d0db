// What a replay is shielded from, for as long as it lives.
#pragma once

#include <c10/core/AutogradState.h>

#include "../internals/modes.h"

namespace airgraph {

// All of the caller's thread that decides what an operator does: autograd, autocast, dispatch and function modes,
// transforms and inference mode. A kernel that calls an operator meets what the capture met, whatever is around the
// call. Autocast is in the recorded calls; AOTAutograd makes the first call of a function in a mode, which would be met
// without the GIL.
class ReplayGuard {
 public:
  ReplayGuard() : keys_(kIncluded, kExcluded), state_(c10::AutogradState::get_tls_state()) {
    grad_ = state_.get_grad_mode();
    inference_ = state_.get_inference_mode();
    forward_ = state_.get_fw_grad_mode();
    state_.set_grad_mode(false);
    state_.set_inference_mode(false);
    state_.set_fw_grad_mode(false);
  }
  ~ReplayGuard() {
    state_.set_grad_mode(grad_);
    state_.set_inference_mode(inference_);
    state_.set_fw_grad_mode(forward_);
  }
  ReplayGuard(const ReplayGuard&) = delete;
  ReplayGuard& operator=(const ReplayGuard&) = delete;

 private:
  static constexpr c10::DispatchKeySet kIncluded{c10::DispatchKey::BackendSelect};
  // Modes and transforms are what a thread includes beside its defaults.
  static constexpr c10::DispatchKeySet kExcluded =
      c10::default_excluded_set | c10::autograd_dispatch_keyset_with_ADInplaceOrView;

  DispatchKeysGuard keys_;
  NoFunctionModes no_function_modes_;
  c10::AutogradState& state_;
  bool grad_, inference_, forward_;
};

}  // namespace airgraph
