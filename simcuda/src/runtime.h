// SPDX-License-Identifier: Apache-2.0
// The devices of the process, and which of them a thread uses.
#pragma once

#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "external_events.h"
#include "settings.h"
#include "simdevice/device.h"

namespace simcuda {

using namespace simdevice;

class Runtime {
 public:
  // Made at the first use and never destroyed.
  static Runtime& get();

  Device& device(int number) { return *devices_.at(static_cast<std::size_t>(number)); }
  int device_count() const noexcept { return static_cast<int>(devices_.size()); }
  // Of this thread.
  int current_number() const noexcept;
  bool choose(int number) noexcept;
  Device& current() { return device(current_number()); }

  // The stream behind a handle and its device; null handles, and the names of the default stream, mean that of the
  // current device.
  struct Found {
    Device* device = nullptr;
    StreamPtr stream;
  };
  Found stream(void* handle);
  // The device that an address belongs to; null for host memory.
  Device* device_of(const void* address);
  int number_of(const Device& device) const noexcept;

  // Captures and events do not ask which device they are of.
  Handles<Event> events;
  Handles<Graph> graphs;
  HostMemory host_memory;

  // Of the graphs that there are.
  void add_external_event(const GraphPtr& graph, std::shared_ptr<ExternalEvent> event);
  ExternalEvents external_events_of(const GraphPtr& graph);
  void forget_external_events(const Graph* graph);

  FailurePtr check_host_call(const char* call);
  FailurePtr check_device_wait(const char* call);

 private:
  Runtime();
  std::vector<Device*> devices_;
  std::mutex external_mutex_;
  std::unordered_map<const Graph*, ExternalEvents> external_events_;
};

}  // namespace simcuda
