// SPDX-License-Identifier: Apache-2.0
#include "settings.h"

namespace simcuda {

Settings read_settings(Lookup lookup) {
  Settings result;
  result.prefix = "SIMCUDA";
  read_device_settings(result, lookup);
  read_setting(result, lookup, "DEVICES", "a number of devices from 1 to 8", [&](std::string_view text) {
    const auto value = number_of(text);
    if (!value || *value == 0 || *value > 8) return false;
    result.device_count = static_cast<int>(*value);
    return true;
  });
  read_setting(result, lookup, "CAPABILITY", "a compute capability such as 9.0", [&](std::string_view text) {
    const auto point = text.find('.');
    if (point == std::string_view::npos) return false;
    const auto major = number_of(text.substr(0, point));
    const auto minor = number_of(text.substr(point + 1));
    if (!major || !minor || *major > 99 || *minor > 9) return false;
    result.capability_major = static_cast<int>(*major);
    result.capability_minor = static_cast<int>(*minor);
    return true;
  });
  return result;
}

Settings& held_settings() {
  static Settings& result = *new Settings(read_settings(&environment_variable));
  return result;
}

const Settings& settings() { return held_settings(); }

}  // namespace simcuda

const simdevice::DeviceSettings& simdevice::device_settings() { return simcuda::settings(); }
