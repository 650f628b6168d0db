// SPDX-License-Identifier: Apache-2.0
// What can be chosen of a simulated device, whichever runtime is in front of it; and reading it from variables.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "simdevice/engine/schedule.h"

namespace simdevice {

struct DeviceSettings {
  std::string prefix;                                 // of the variables' names: "SIMCANN"
  bool kernels_enabled = true;                        // ..._KERNELS=on|off
  std::size_t memory_nbytes = std::size_t{16} << 30;  // ..._MEMORY=512MiB or 16GiB
  std::uint32_t stream_limit = 1980;                  // ..._STREAMS
  Schedule schedule;                                  // ..._SCHEDULE=parallel|adversarial|seed:N
  std::string failures;                               // ..._FAIL=call:calls_before,..., see asked_failures.h
  std::string trace_path;                             // ..._TRACE=stderr or a file; empty: no trace
  std::string problem;  // names the first variable that could not be read; the first use of the device fails with it
};

// Null where there is no such variable.
using Lookup = const char* (*)(const char* name);

const char* environment_variable(const char* name);

// Gives the value of `settings.prefix`_`name`, if there is one, to `accept`; what that refuses is noted in `problem`.
void read_setting(DeviceSettings& settings, Lookup lookup, std::string_view name, std::string_view expected,
                  const std::function<bool(std::string_view)>& accept);
// All variables that are named above.
void read_device_settings(DeviceSettings& settings, Lookup lookup);

std::optional<std::uint64_t> number_of(std::string_view text);

// Defined by the runtime: read when it is loaded, see read_anew.h.
const DeviceSettings& device_settings();

}  // namespace simdevice
