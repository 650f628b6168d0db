// SPDX-License-Identifier: Apache-2.0
// The last error of each thread, for aclGetRecentErrMsg and aclrtGetLastError.
#pragma once

#include "device.h"
#include "simdevice/engine/failure.h"

namespace simcann {

using namespace simdevice;

inline Status fail(const FailurePtr& failure) { return failure ? fail(failure->status, failure->message) : 0; }

// The message of the last failure in this thread, which is then forgotten; null if there is none.
const char* take_recent_message();

Status last_status() noexcept;
void forget_last_status() noexcept;

}  // namespace simcann
