// SPDX-License-Identifier: Apache-2.0
#include "settings.h"

namespace simcann {

Settings read_settings(Lookup lookup) {
  Settings result;
  result.prefix = "SIMCANN";
  read_device_settings(result, lookup);
  const auto text_into = [](std::string& target) {
    return [&target](std::string_view text) {
      target = text;
      return true;
    };
  };
  read_setting(result, lookup, "SOC", "the name of a SoC", text_into(result.soc));
  read_setting(result, lookup, "CANN_VERSION", "a version such as 8.5.0", text_into(result.cann_version));
  return result;
}

Settings& held_settings() {
  static Settings& result = *new Settings(read_settings(&environment_variable));
  return result;
}

const Settings& settings() { return held_settings(); }

}  // namespace simcann

const simdevice::DeviceSettings& simdevice::device_settings() { return simcann::settings(); }
