// SPDX-License-Identifier: Apache-2.0
// What a runtime defines of a device, for tests without one.
#include "simdevice/asked_failures.h"
#include "simdevice/engine/failure.h"
#include "simdevice/settings.h"

simdevice::Status simdevice::status_of(Fault fault) noexcept { return 1 + static_cast<int>(fault); }

simdevice::Status simdevice::usual_failure_of(std::string_view) noexcept { return 1000; }

const simdevice::DeviceSettings& simdevice::device_settings() {
  static const DeviceSettings settings = [] {
    DeviceSettings result;
    result.prefix = "TEST";
    return result;
  }();
  return settings;
}
