// SPDX-License-Identifier: Apache-2.0
// Captures under way: which streams note their work in which graph, what may not be called meanwhile, and updates of
// recorded task groups.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "simdevice/engine/event.h"
#include "simdevice/engine/graph.h"
#include "simdevice/engine/stream.h"

namespace simdevice {

enum class CaptureMode { global, thread_local_, relaxed };
enum class CaptureStatus { none, active, invalidated };

using StreamPtr = std::shared_ptr<Stream>;
using EventPtr = std::shared_ptr<Event>;
using GraphPtr = std::shared_ptr<Graph>;
using TaskGroupPtr = std::shared_ptr<Graph::TaskGroup>;

// One capture. Its fields belong to Captures, which guards them.
class Capture {
  friend class Captures;

  struct StreamState {
    std::uint32_t lane = 0;
    std::int32_t last_node = -1;
    std::int32_t open_group = -1;
  };

  CaptureMode mode = CaptureMode::global;
  std::thread::id thread;
  StreamPtr origin;
  GraphPtr graph;
  std::unordered_map<StreamPtr, StreamState> streams;
  FailurePtr invalidated_by;
};

class Captures {
 public:
  // runs_work: false drops the work of nodes (the kernels are off), the graph keeps its shape.
  explicit Captures(bool runs_work) : runs_work_(runs_work) {}

  // Every failure below that comes from a call which a capture forbids invalidates that capture, as on a device: it
  // goes on until `end`, which then fails, and everything is usable again.

  FailurePtr begin(const StreamPtr& stream, CaptureMode mode, GraphPtr* graph);
  // Only on the stream it began on, and (except relaxed) in that thread. `graph` is the one that `begin` gave.
  FailurePtr end(const StreamPtr& stream, GraphPtr* graph);
  CaptureStatus status(const StreamPtr& stream, GraphPtr* graph) const;
  // Swaps the mode in which this thread respects captures.
  static CaptureMode exchange_thread_mode(CaptureMode mode) noexcept;

  // For a stream whose `recording` is captured or updated.
  FailurePtr add(const StreamPtr& stream, NodeKind kind, std::string name, std::function<void()> work,
                 ValueWait value_wait = {});
  FailurePtr record(const StreamPtr& stream, const EventPtr& event);
  // `event` was last recorded in a capture, or `stream` is being captured. The stream joins the event's capture.
  FailurePtr wait(const StreamPtr& stream, const EventPtr& event);

  // Whether this thread may make a call that does not go to a stream, such as a synchronous copy.
  FailurePtr check_host_call(const char* call);
  // Whether waiting for all work on the device is possible.
  FailurePtr check_device_wait(const char* call);
  // The refusals of what cannot be done to a captured stream or event; null if it is not captured.
  FailurePtr refuse_if_captured(const StreamPtr& stream, const char* call);
  FailurePtr refuse_if_captured(const EventPtr& event, const char* call);
  FailurePtr refuse_blocking_copy(const StreamPtr& stream);

  FailurePtr begin_group(const StreamPtr& stream);
  FailurePtr end_group(const StreamPtr& stream, TaskGroupPtr* group);
  // From `begin_update` on, work on the stream is not run: `end_update` gives it to the nodes of the group, in the
  // stream's order.
  FailurePtr begin_update(const StreamPtr& stream, const TaskGroupPtr& group);
  FailurePtr end_update(const StreamPtr& stream);

  void abandon_all();

 private:
  struct Update {
    TaskGroupPtr group;
    std::vector<std::function<void()>> work;
  };
  using CapturePtr = std::shared_ptr<Capture>;

  CapturePtr find(const StreamPtr& stream) const;
  static FailurePtr invalidate(Capture& capture, Fault fault, std::string message);
  static FailurePtr invalidated(const Capture& capture);
  static FailurePtr unjoined(const Capture& capture);
  std::uint32_t add_node(Capture& capture, const StreamPtr& stream, Node node);
  void join(const CapturePtr& capture, const StreamPtr& stream);
  void release_streams(const Capture& capture);
  FailurePtr check_call(const char* call, bool own_relaxed_capture_counts);

  const bool runs_work_;
  std::atomic<int> under_way_{0};
  mutable std::mutex mutex_;
  std::vector<CapturePtr> captures_;
  std::unordered_map<StreamPtr, Update> updates_;
  std::uint32_t next_graph_id_ = 1;
};

}  // namespace simdevice
