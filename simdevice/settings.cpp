// SPDX-License-Identifier: Apache-2.0
#include "simdevice/settings.h"

#include <charconv>
#include <cstdlib>

namespace simdevice {
namespace {

std::optional<std::size_t> nbytes_of(std::string_view text) {
  int shift = 0;
  if (text.ends_with("MiB")) shift = 20;
  if (text.ends_with("GiB")) shift = 30;
  if (shift == 0) return std::nullopt;
  const auto count = number_of(text.substr(0, text.size() - 3));
  if (!count || *count == 0 || *count > (std::uint64_t{1} << (40 - shift))) return std::nullopt;  // at most 1 TiB
  return *count << shift;
}

std::optional<Schedule> schedule_of(std::string_view text) {
  constexpr std::string_view seed = "seed:";
  if (text == "parallel") return Schedule{};
  if (text == "adversarial") return Schedule{Order::adversarial, 0};
  if (!text.starts_with(seed)) return std::nullopt;
  const auto value = number_of(text.substr(seed.size()));
  if (!value) return std::nullopt;
  return Schedule{Order::seeded, *value};
}

}  // namespace

const char* environment_variable(const char* name) { return std::getenv(name); }

std::optional<std::uint64_t> number_of(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

void read_setting(DeviceSettings& settings, Lookup lookup, std::string_view name, std::string_view expected,
                  const std::function<bool(std::string_view)>& accept) {
  const std::string variable = settings.prefix + "_" + std::string(name);
  const char* text = lookup(variable.c_str());
  if (text == nullptr || *text == '\0' || accept(text) || !settings.problem.empty()) return;
  settings.problem = variable + "=" + text + " is not understood: expected " + std::string(expected);
}

void read_device_settings(DeviceSettings& settings, Lookup lookup) {
  const auto read = [&](std::string_view name, std::string_view expected,
                        const std::function<bool(std::string_view)>& accept) {
    read_setting(settings, lookup, name, expected, accept);
  };
  read("KERNELS", "on or off", [&](std::string_view text) {
    settings.kernels_enabled = text != "off";
    return text == "on" || text == "off";
  });
  read("MEMORY", "a size such as 512MiB or 16GiB", [&](std::string_view text) {
    const auto value = nbytes_of(text);
    if (value) settings.memory_nbytes = *value;
    return value.has_value();
  });
  read("STREAMS", "a number of streams from 1 to 65535", [&](std::string_view text) {
    const auto value = number_of(text);
    if (!value || *value == 0 || *value > 65535) return false;
    settings.stream_limit = static_cast<std::uint32_t>(*value);
    return true;
  });
  read("SCHEDULE", "parallel, adversarial or seed:N", [&](std::string_view text) {
    const auto value = schedule_of(text);
    if (value) settings.schedule = *value;
    return value.has_value();
  });
  read("FAIL", "calls and counts such as malloc:3", [&](std::string_view text) {
    settings.failures = text;
    return true;
  });
  read("TRACE", "stderr or a file", [&](std::string_view text) {
    settings.trace_path = text;
    return true;
  });
}

}  // namespace simdevice
