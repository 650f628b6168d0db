// SPDX-License-Identifier: Apache-2.0
// A device of the engine's parts, without the runtime around them.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <thread>

#include "check.h"
#include "simdevice/engine/capture.h"
#include "simdevice/engine/lane_threads.h"
#include "simdevice/engine/stream.h"

namespace simdevice {

struct TestDevice {
  explicit TestDevice(Schedule order = {}, bool runs_tasks = true)
      : schedule(order),
        turnstile(order),
        context{.workers = workers, .turnstile = turnstile, .runs_tasks = runs_tasks},
        captures(runs_tasks) {}

  // All threads must be gone before what they use.
  ~TestDevice() {
    workers.request_stop();
    for (const auto& stream : streams) stream->wake();
    lane_threads.wake();
    CHECK(workers.wait_until_left(std::chrono::seconds(20)));
  }

  StreamPtr stream() {
    streams.push_back(std::make_shared<Stream>(context, static_cast<std::int32_t>(streams.size() + 1), 0, 0));
    return streams.back();
  }

  // What launching a kernel does.
  FailurePtr launch(const StreamPtr& stream, std::function<void()> kernel, const char* name = "kernel") {
    if (stream->recording() != Stream::Recording::none) {
      return captures.add(stream, NodeKind::kernel, name, std::move(kernel));
    }
    stream->submit({.kind = Task::Kind::kernel, .name = name, .body = std::move(kernel)});
    return nullptr;
  }

  FailurePtr record(const StreamPtr& stream, const EventPtr& event) {
    if (stream->recording() != Stream::Recording::none) return captures.record(stream, event);
    const auto point = std::make_shared<Completion>();
    event->set({.point = point, .capture = {}, .node = 0});
    stream->record(point);
    return nullptr;
  }

  FailurePtr run(const GraphPtr& graph) {
    return graph->run(schedule, [this] { return given_up.load(); }, lane_threads);
  }

  std::atomic<bool> given_up{false};
  Schedule schedule;
  Workers workers;
  Turnstile turnstile;
  StreamContext context;
  LaneThreads lane_threads{workers};
  Captures captures;
  std::vector<StreamPtr> streams;
};

inline EventPtr new_event() { return std::make_shared<Event>(0); }

inline void pause_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

}  // namespace simdevice
