// What a replay is shielded from, for as long as it lives.
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <optional>

namespace airgraph {

// Autograd, and a dispatch mode of the caller's: AOTAutograd makes the first call of a function in one, and a kernel
// that calls an operator would meet it, in Python and without the GIL.
class ReplayGuard {
 public:
  ReplayGuard() {
    if (c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::Python)) {
      below_modes_.emplace(c10::DispatchKeySet({c10::DispatchKey::Python, c10::DispatchKey::PythonTLSSnapshot}));
    }
  }

 private:
  at::AutoDispatchBelowADInplaceOrView below_autograd_;
  std::optional<c10::impl::ExcludeDispatchKeyGuard> below_modes_;
};

}  // namespace airgraph
