// SPDX-License-Identifier: Apache-2.0
// One simulated device: its streams, memory, captures and graphs, and the handles by which callers know them.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <shared_mutex>
#include <unordered_map>
#include <vector>

#include "simdevice/engine/capture.h"
#include "simdevice/engine/event.h"
#include "simdevice/engine/graph.h"
#include "simdevice/engine/lane_threads.h"
#include "simdevice/engine/schedule.h"
#include "simdevice/engine/stream.h"
#include "simdevice/engine/workers.h"
#include "simdevice/memory/device_memory.h"
#include "simdevice/memory/host_memory.h"
#include "simdevice/settings.h"

namespace simdevice {

// Objects by the pointer that callers hold. A pointer that is not (or no longer) known is found out, not followed.
template <typename T>
class Handles {
 public:
  void* add(std::shared_ptr<T> object) {
    std::unique_lock lock(mutex_);
    void* handle = object.get();
    objects_.emplace(handle, std::move(object));
    return handle;
  }
  std::shared_ptr<T> find(const void* handle) const {
    std::shared_lock lock(mutex_);
    const auto it = objects_.find(handle);
    return it == objects_.end() ? nullptr : it->second;
  }
  std::shared_ptr<T> remove(const void* handle) {
    std::unique_lock lock(mutex_);
    const auto it = objects_.find(handle);
    if (it == objects_.end()) return nullptr;
    auto object = std::move(it->second);
    objects_.erase(it);
    return object;
  }
  std::vector<std::shared_ptr<T>> all() const {
    std::shared_lock lock(mutex_);
    std::vector<std::shared_ptr<T>> result;
    for (const auto& [handle, object] : objects_) result.push_back(object);
    return result;
  }

 private:
  mutable std::shared_mutex mutex_;
  std::unordered_map<const void*, std::shared_ptr<T>> objects_;
};

class Device {
 public:
  // Never destroyed: threads may still use it while the process ends; `shut_down` before that.
  explicit Device(const DeviceSettings& settings);

  // The stream behind a handle; a null handle means the default stream. Null if there is none: the caller then
  // returns `no_such_stream`.
  std::shared_ptr<Stream> stream(void* handle);
  FailurePtr create_stream(std::uint32_t priority, std::uint32_t flags, void** handle);
  // Queue work on a stream, or note it in the graph that the stream records.
  FailurePtr enqueue(const StreamPtr& stream, NodeKind kind, std::string name, std::function<void()> work,
                     ValueWait value_wait = {});
  FailurePtr replay(GraphPtr graph, const StreamPtr& stream);

  // What is queued still runs unless `force`.
  FailurePtr destroy_stream(void* handle, bool force);
  std::vector<std::shared_ptr<Stream>> streams();
  std::uint32_t streams_left() const;

  // Drop all queued work, all captures and all failures.
  void reset();
  // Tell all threads to leave and wait a moment for them.
  void shut_down();

  DeviceMemory memory;
  HostMemory host_memory;
  Handles<Event> events;
  Handles<Graph> graphs;
  Handles<Graph::TaskGroup> task_groups;
  Captures captures;

  bool kernels_enabled() const noexcept { return settings_.kernels_enabled; }

 private:
  void abort_work(const std::vector<StreamPtr>& aborted);
  // True once the process ends or the stream's work is dropped.
  std::function<bool()> until_unwanted(const StreamPtr& stream);

  const DeviceSettings& settings_;
  Workers workers_;
  Turnstile turnstile_;
  LaneThreads lane_threads_;
  StreamContext stream_context_;
  Handles<Stream> streams_;
  std::atomic<std::uint32_t> stream_count_{0};
  std::atomic<std::int32_t> next_stream_id_{1};
  std::shared_ptr<Stream> default_stream_;
};

FailurePtr no_such_stream(const void* handle);
FailurePtr used_after_fork();

}  // namespace simdevice
