// SPDX-License-Identifier: Apache-2.0
#include "runtime.h"

#include <cstdlib>

#include "device.h"
#include "settings.h"
#include "simdevice/trace.h"
#include "status.h"

namespace simcann {

Runtime& Runtime::get() {
  static Runtime& runtime = *new Runtime;
  return runtime;
}

Runtime::Runtime() : Device(settings()) {
  // Registered after the libraries that kernels use were loaded, so it runs before their own end.
  std::atexit([] { get().shut_down(); });
}

void* host_view(const void* device) { return Runtime::get().memory.host_view(device); }

bool kernels_enabled() { return settings().kernels_enabled; }

Status launch(void* handle, std::string name, std::function<void()> kernel) {
  trace("launch", name, handle);
  auto& runtime = Runtime::get();
  const auto stream = runtime.stream(handle);
  if (!stream) return fail(no_such_stream(handle));
  return fail(runtime.enqueue(stream, NodeKind::kernel, std::move(name), std::move(kernel)));
}

}  // namespace simcann
