// SPDX-License-Identifier: Apache-2.0
// The environment variables of the simulated runtime, read once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "engine/schedule.h"

namespace simcann {

struct Settings {
  bool kernels_enabled = true;                        // SIMCANN_KERNELS=on|off
  std::size_t memory_nbytes = std::size_t{16} << 30;  // SIMCANN_MEMORY=512MiB or 16GiB
  std::uint32_t stream_limit = 1980;                  // SIMCANN_STREAMS
  Schedule schedule;                                  // SIMCANN_SCHEDULE=parallel|adversarial|seed:N
  std::string trace_path;                             // SIMCANN_TRACE=stderr or a file; empty: no trace
  std::string soc = "Ascend910B1";                    // SIMCANN_SOC
  std::string cann_version = "8.5.0";                 // SIMCANN_CANN_VERSION
  std::string problem;  // names the first variable that could not be read; aclInit then fails with it
};

const Settings& settings();

// For tests: as `settings`, but from `lookup` instead of the environment.
Settings read_settings(const char* (*lookup)(const char* name));

}  // namespace simcann
