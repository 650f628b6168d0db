// SPDX-License-Identifier: Apache-2.0
// ..._TRACE: one line for every call that reaches the runtime.
#pragma once

#include <sstream>
#include <string>

namespace simdevice {

bool trace_enabled() noexcept;
void write_trace(const std::string& line);
// Where the settings say now.
void open_trace_anew();

template <typename... Arguments>
void trace(const char* call, const Arguments&... arguments) {
  if (!trace_enabled()) return;
  std::ostringstream line;
  line << call;
  [[maybe_unused]] const char* separator = " ";
  ((line << separator << arguments, separator = ", "), ...);
  write_trace(line.str());
}

}  // namespace simdevice
