// SPDX-License-Identifier: Apache-2.0
// The last error of each thread, for aclGetRecentErrMsg and aclrtGetLastError.
#pragma once

#include "device.h"
#include "simdevice/engine/failure.h"
#include "simdevice/trace.h"

namespace simcann {

using namespace simdevice;

inline Status fail(const FailurePtr& failure) { return failure ? fail(failure->status, failure->message) : 0; }

// The failure that somebody asked for (SIMCANN_FAIL, simcann_fail) for this call, or success.
Status asked_for_failure(const char* call);

// At the start of a function that can be asked to fail: its line in the trace, and the failure to return.
template <typename... Arguments>
Status entered(const char* call, const Arguments&... arguments) {
  trace(call, arguments...);
  return asked_for_failure(call);
}

// The message of the last failure in this thread, which is then forgotten; null if there is none.
const char* take_recent_message();

Status last_status() noexcept;
void forget_last_status() noexcept;

}  // namespace simcann
