// SPDX-License-Identifier: Apache-2.0
// Settings read a second time: by a process that was forked, before it used the device, from one that had loaded it.
#pragma once

#include "simdevice/asked_failures.h"
#include "simdevice/fork.h"
#include "simdevice/settings.h"
#include "simdevice/trace.h"

namespace simdevice {

// A runtime's settings, and what follows from them, as its variables say now. False where the device is in use.
template <class Settings>
bool read_anew(Settings& settings, Settings (*read)(Lookup)) {
  if (is_used()) return false;
  settings = read(&environment_variable);
  ask_for_no_failure();
  ask_for_failures(settings.failures);
  open_trace_anew();
  return true;
}

}  // namespace simdevice
