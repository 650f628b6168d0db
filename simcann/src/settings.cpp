// SPDX-License-Identifier: Apache-2.0
#include "settings.h"

#include <charconv>
#include <cstdlib>
#include <optional>
#include <string_view>

namespace simcann {
namespace {

std::optional<std::uint64_t> number(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<std::size_t> nbytes(std::string_view text) {
  int shift = 0;
  if (text.ends_with("MiB")) shift = 20;
  if (text.ends_with("GiB")) shift = 30;
  if (shift == 0) return std::nullopt;
  const auto count = number(text.substr(0, text.size() - 3));
  if (!count || *count == 0 || *count > (std::uint64_t{1} << (40 - shift))) return std::nullopt;  // at most 1 TiB
  return *count << shift;
}

std::optional<Schedule> schedule(std::string_view text) {
  constexpr std::string_view seed = "seed:";
  if (text == "parallel") return Schedule{};
  if (text == "adversarial") return Schedule{Order::adversarial, 0};
  if (!text.starts_with(seed)) return std::nullopt;
  const auto value = number(text.substr(seed.size()));
  if (!value) return std::nullopt;
  return Schedule{Order::seeded, *value};
}

}  // namespace

Settings read_settings(const char* (*lookup)(const char* name)) {
  Settings result;
  const auto read = [&](const char* name, const char* expected, auto&& accept) {
    const char* text = lookup(name);
    if (text == nullptr || *text == '\0' || accept(std::string_view(text)) || !result.problem.empty()) return;
    result.problem = std::string(name) + "=" + text + " is not understood: expected " + expected;
  };
  const auto text_into = [](std::string& target) {
    return [&target](std::string_view text) {
      target = text;
      return true;
    };
  };
  read("SIMCANN_KERNELS", "on or off", [&](std::string_view text) {
    result.kernels_enabled = text != "off";
    return text == "on" || text == "off";
  });
  read("SIMCANN_MEMORY", "a size such as 512MiB or 16GiB", [&](std::string_view text) {
    const auto value = nbytes(text);
    if (value) result.memory_nbytes = *value;
    return value.has_value();
  });
  read("SIMCANN_STREAMS", "a number of streams from 1 to 65535", [&](std::string_view text) {
    const auto value = number(text);
    if (!value || *value == 0 || *value > 65535) return false;
    result.stream_limit = static_cast<std::uint32_t>(*value);
    return true;
  });
  read("SIMCANN_SCHEDULE", "parallel, adversarial or seed:N", [&](std::string_view text) {
    const auto value = schedule(text);
    if (value) result.schedule = *value;
    return value.has_value();
  });
  read("SIMCANN_TRACE", "stderr or a file", text_into(result.trace_path));
  read("SIMCANN_SOC", "the name of a SoC", text_into(result.soc));
  read("SIMCANN_CANN_VERSION", "a version such as 8.5.0", text_into(result.cann_version));
  return result;
}

const Settings& settings() {
  static const Settings* const result = new Settings(read_settings([](const char* name) -> const char* {
    return std::getenv(name);
  }));
  return *result;
}

}  // namespace simcann
