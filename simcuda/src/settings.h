// SPDX-License-Identifier: Apache-2.0
// The environment variables of the simulated CUDA runtime.
#pragma once

#include "simdevice/settings.h"

namespace simcuda {

using namespace simdevice;

struct Settings : DeviceSettings {
  int device_count = 2;      // SIMCUDA_DEVICES
  int capability_major = 9;  // SIMCUDA_CAPABILITY=9.0
  int capability_minor = 0;
};

const Settings& settings();
// For read_anew.h.
Settings& held_settings();
Settings read_settings(Lookup lookup);

}  // namespace simcuda
