// SPDX-License-Identifier: Apache-2.0
#include "simdevice/trace.h"

#include <cstdio>
#include <mutex>

#include <sys/syscall.h>
#include <unistd.h>

#include "simdevice/settings.h"

namespace simdevice {
namespace {

std::FILE* open_sink() {
  const auto& path = device_settings().trace_path;
  if (path.empty()) return nullptr;
  if (path == "stderr") return stderr;
  std::FILE* file = std::fopen(path.c_str(), "we");
  if (file == nullptr) std::fprintf(stderr, "simulated device: cannot write SIMCANN_TRACE=%s\n", path.c_str());
  return file;
}

std::FILE*& sink() {
  static std::FILE* file = open_sink();
  return file;
}

}  // namespace

bool trace_enabled() noexcept { return sink() != nullptr; }

void open_trace_anew() { sink() = open_sink(); }

void write_trace(const std::string& line) {
  static std::mutex& mutex = *new std::mutex;
  std::lock_guard lock(mutex);
  std::fprintf(sink(), "[%ld] %s\n", static_cast<long>(::syscall(SYS_gettid)), line.c_str());
  // The line must be there even if the call that it announces ends the process.
  std::fflush(sink());
}

}  // namespace simdevice
