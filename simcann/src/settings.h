// SPDX-License-Identifier: Apache-2.0
// The environment variables of the simulated runtime.
#pragma once

#include <string>

#include "simdevice/settings.h"

namespace simcann {

using namespace simdevice;

struct Settings : DeviceSettings {
  std::string soc = "Ascend910B1";     // SIMCANN_SOC
  std::string cann_version = "8.5.0";  // SIMCANN_CANN_VERSION
};

const Settings& settings();
// For read_anew.h.
Settings& held_settings();

// For tests and read_anew.h: as `settings`, but from `lookup` instead of the environment.
Settings read_settings(Lookup lookup);

}  // namespace simcann
