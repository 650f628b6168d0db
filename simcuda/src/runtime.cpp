// SPDX-License-Identifier: Apache-2.0
#include "runtime.h"

#include <cstdlib>

#include "device.h"
#include "simdevice/trace.h"
#include "status.h"

namespace simcuda {
namespace {

thread_local int chosen_device = 0;

// The names of the default stream (cudaStreamLegacy, cudaStreamPerThread).
bool is_default_stream(void* handle) noexcept { return reinterpret_cast<std::uintptr_t>(handle) <= 2; }

}  // namespace

Runtime& Runtime::get() {
  static Runtime& runtime = *new Runtime;
  return runtime;
}

Runtime::Runtime() {
  for (int i = 0; i < settings().device_count; ++i) devices_.push_back(new Device(settings()));
  // Registered after the libraries that kernels use were loaded, so it runs before their own end.
  std::atexit([] {
    for (auto* device : get().devices_) device->shut_down();
  });
}

int Runtime::current_number() const noexcept { return chosen_device; }

bool Runtime::choose(int number) noexcept {
  if (number < 0 || number >= device_count()) return false;
  chosen_device = number;
  return true;
}

Runtime::Found Runtime::stream(void* handle) {
  if (is_default_stream(handle)) return {&current(), current().stream(nullptr)};
  for (auto* device : devices_) {
    if (auto stream = device->stream(handle)) return {device, std::move(stream)};
  }
  return {};
}

Device* Runtime::device_of(const void* address) {
  for (auto* device : devices_) {
    if (device->memory.contains(address)) return device;
  }
  return nullptr;
}

int Runtime::number_of(const Device& device) const noexcept {
  for (std::size_t i = 0; i < devices_.size(); ++i) {
    if (devices_[i] == &device) return static_cast<int>(i);
  }
  return -1;
}

FailurePtr Runtime::check_host_call(const char* call) {
  FailurePtr first;
  for (auto* device : devices_) {
    if (auto failure = device->captures.check_host_call(call); failure && !first) first = std::move(failure);
  }
  return first;
}

FailurePtr Runtime::check_device_wait(const char* call) {
  FailurePtr first;
  for (auto* device : devices_) {
    if (auto failure = device->captures.check_device_wait(call); failure && !first) first = std::move(failure);
  }
  return first;
}

void Runtime::add_external_event(const GraphPtr& graph, std::shared_ptr<ExternalEvent> event) {
  std::lock_guard lock(external_mutex_);
  external_events_[graph.get()].push_back(std::move(event));
}

ExternalEvents Runtime::external_events_of(const GraphPtr& graph) {
  std::lock_guard lock(external_mutex_);
  const auto it = external_events_.find(graph.get());
  return it == external_events_.end() ? ExternalEvents{} : it->second;
}

void Runtime::forget_external_events(const Graph* graph) {
  std::lock_guard lock(external_mutex_);
  external_events_.erase(graph);
}

void* host_view(const void* address) {
  auto* device = Runtime::get().device_of(address);
  return device == nullptr ? nullptr : device->memory.host_view(address);
}

bool is_allocated(const void* address, std::size_t nbytes) {
  auto* device = Runtime::get().device_of(address);
  return device != nullptr && !device->memory.check_range(address, nbytes);
}

bool kernels_enabled() { return settings().kernels_enabled; }

int launch(void* handle, std::string name, std::function<void()> kernel) {
  if (const auto failed = entered("cudaLaunchKernel", name, handle)) return failed;
  const auto [device, stream] = Runtime::get().stream(handle);
  if (!stream) return fail(no_such_stream(handle));
  return fail(device->enqueue(stream, NodeKind::kernel, std::move(name), std::move(kernel)));
}

}  // namespace simcuda
