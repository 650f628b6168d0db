// SPDX-License-Identifier: Apache-2.0
// Failures that somebody asked for, to see what the host does then: by ..._FAIL, or in a program.
#pragma once

#include <string_view>

#include "simdevice/engine/failure.h"

namespace simdevice {

// A call of the runtime fails once, after it succeeded so many times. status: 0 means what such a call usually fails with.
void ask_for_failure(std::string_view call, long calls_before, Status status);

// As a variable says it: call:calls_before,call:calls_before
void ask_for_failures(std::string_view text);

// That no call fails any more. Returns how many had not failed yet.
int ask_for_no_failure();

// The status to fail this call with, now; 0: none. It costs next to nothing while nobody asks.
Status asked_for(std::string_view call);

// Defined by the runtime: what a call usually fails with.
Status usual_failure_of(std::string_view call) noexcept;

}  // namespace simdevice
