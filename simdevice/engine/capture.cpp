// SPDX-License-Identifier: Apache-2.0
#include "simdevice/engine/capture.h"

#include <algorithm>
#include <utility>

namespace simdevice {
namespace {

thread_local CaptureMode thread_mode = CaptureMode::global;

std::string named(const Stream& stream) { return "stream " + std::to_string(stream.id()); }

std::string described(const Node& node) {
  const std::string kind = name_of(node.kind);
  return node.name.empty() ? kind : kind + " '" + node.name + "'";
}

}  // namespace

CaptureMode Captures::exchange_thread_mode(CaptureMode mode) noexcept { return std::exchange(thread_mode, mode); }

Captures::CapturePtr Captures::find(const StreamPtr& stream) const {
  for (const auto& capture : captures_) {
    if (capture->streams.contains(stream)) return capture;
  }
  return nullptr;
}

FailurePtr Captures::invalidate(Capture& capture, Fault fault, std::string message) {
  auto failure = make_failure(fault, std::move(message));
  if (!capture.invalidated_by) capture.invalidated_by = failure;
  return failure;
}

FailurePtr Captures::invalidated(const Capture& capture) {
  if (!capture.invalidated_by) return nullptr;
  return make_failure(Fault::capture_invalidated,
                      "the capture was invalidated: " + capture.invalidated_by->message);
}

void Captures::join(const CapturePtr& capture, const StreamPtr& stream) {
  capture->streams[stream].lane = capture->graph->add_lane(stream->id());
  stream->set_recording(Stream::Recording::captured);
}

void Captures::release_streams(const Capture& capture) {
  for (const auto& [stream, state] : capture.streams) stream->set_recording(Stream::Recording::none);
}

FailurePtr Captures::begin(const StreamPtr& stream, CaptureMode mode, GraphPtr* graph) {
  std::lock_guard lock(mutex_);
  if (stream->recording() != Stream::Recording::none) {
    return make_failure(Fault::stream_captured, named(*stream) + " is being captured or updated already");
  }
  const auto capture = std::make_shared<Capture>();
  capture->mode = mode;
  capture->thread = std::this_thread::get_id();
  capture->origin = stream;
  capture->graph = std::make_shared<Graph>(next_graph_id_++);
  join(capture, stream);
  captures_.push_back(capture);
  under_way_.fetch_add(1);
  *graph = capture->graph;
  return nullptr;
}

// A stream that took part has to be waited for by the origin: what it did last must come before the origin's end.
// A record at its end may stay without a wait, since nothing happens after it.
FailurePtr Captures::unjoined(const Capture& capture) {
  const auto& graph = *capture.graph;
  const auto origin_last = capture.streams.at(capture.origin).last_node;
  if (origin_last < 0) return nullptr;
  const auto joined = graph.ancestors_of(static_cast<std::uint32_t>(origin_last));
  for (std::uint32_t i = 0; i < graph.lane_count(); ++i) {
    const auto last = graph.last_work_in_lane(i);
    if (last && !joined[*last]) {
      const auto& node = graph.nodes()[*last];
      return make_failure(Fault::capture_unjoined,
                          "stream " + std::to_string(graph.stream_of_lane(i)) + " was not joined: its last work, " +
                              described(node) + ", is not waited for by " + named(*capture.origin) +
                              ", on which the capture began");
    }
  }
  return nullptr;
}

FailurePtr Captures::end(const StreamPtr& stream, GraphPtr* graph) {
  std::lock_guard lock(mutex_);
  const auto capture = find(stream);
  if (!capture) return make_failure(Fault::stream_not_captured, named(*stream) + " is not being captured");
  if (capture->origin != stream) {
    return make_failure(Fault::capture_unmatched,
                        "the capture began on " + named(*capture->origin) + ", not on " + named(*stream));
  }
  if (capture->mode != CaptureMode::relaxed && capture->thread != std::this_thread::get_id()) {
    return make_failure(Fault::capture_wrong_thread,
                        "the capture on " + named(*stream) +
                            " began in another thread; only relaxed ones may end here");
  }
  release_streams(*capture);
  std::erase(captures_, capture);
  under_way_.fetch_sub(1);
  if (auto failure = invalidated(*capture)) return failure;
  for (const auto& [member, state] : capture->streams) {
    if (state.open_group >= 0) {
      return make_failure(Fault::group_open, "a task group is still open on " + named(*member));
    }
  }
  if (auto failure = unjoined(*capture)) return failure;
  *graph = capture->graph;
  return nullptr;
}

CaptureStatus Captures::status(const StreamPtr& stream, GraphPtr* graph) const {
  if (stream->recording() != Stream::Recording::captured) return CaptureStatus::none;
  std::lock_guard lock(mutex_);
  const auto capture = find(stream);
  if (!capture) return CaptureStatus::none;
  *graph = capture->graph;
  return capture->invalidated_by ? CaptureStatus::invalidated : CaptureStatus::active;
}

std::uint32_t Captures::add_node(Capture& capture, const StreamPtr& stream, Node node) {
  auto& state = capture.streams.at(stream);
  node.lane = state.lane;
  const auto number = capture.graph->add_node(std::move(node));
  state.last_node = static_cast<std::int32_t>(number);
  return number;
}

FailurePtr Captures::add(const StreamPtr& stream, NodeKind kind, std::string name, std::function<void()> work,
                         ValueWait value_wait) {
  std::lock_guard lock(mutex_);
  const bool updatable = kind == NodeKind::kernel || kind == NodeKind::memory_copy;
  if (const auto update = updates_.find(stream); update != updates_.end()) {
    if (!updatable) {
      return make_failure(Fault::group_update_refused,
                          std::string(name_of(kind)) + " cannot be part of a task group's update");
    }
    update->second.work.push_back(std::move(work));
    return nullptr;
  }
  const auto capture = find(stream);
  if (!capture) return make_failure(Fault::stream_not_captured, named(*stream) + " is not being captured");
  if (auto failure = invalidated(*capture)) return failure;
  Node node{.kind = kind, .name = std::move(name)};
  if (runs_work_) {
    if (work) node.work = std::make_shared<std::function<void()>>(std::move(work));
    node.value_wait = value_wait;
  }
  if (updatable) node.group = capture->streams.at(stream).open_group;
  add_node(*capture, stream, std::move(node));
  return nullptr;
}

FailurePtr Captures::record(const StreamPtr& stream, const EventPtr& event) {
  std::lock_guard lock(mutex_);
  const auto capture = find(stream);
  if (!capture) {
    return make_failure(Fault::group_update_refused,
                        "an event record cannot be part of a task group's update");
  }
  if (auto failure = invalidated(*capture)) return failure;
  const auto node = add_node(*capture, stream, Node{.kind = NodeKind::event_record});
  event->set({.point = nullptr, .capture = capture, .node = node});
  return nullptr;
}

FailurePtr Captures::wait(const StreamPtr& stream, const EventPtr& event) {
  std::lock_guard lock(mutex_);
  const auto last = event->last();
  const auto source = last.capture.lock();
  const auto capture = find(stream);
  if (updates_.contains(stream)) {
    return make_failure(Fault::group_update_refused,
                        "an event wait cannot be part of a task group's update");
  }
  if (capture) {
    if (auto failure = invalidated(*capture)) return failure;
  }
  if (!source || std::ranges::find(captures_, source) == captures_.end()) {
    // Recorded before the capture (an error), or never, or in a capture that has ended (nothing to wait for).
    if (!capture || !last.point) return nullptr;
    return invalidate(*capture, Fault::capture_dependency,
                      named(*stream) + ", which is being captured, waits for an event that was recorded outside of "
                                       "the capture");
  }
  if (auto failure = invalidated(*source)) return failure;
  if (capture && capture != source) {
    invalidate(*source, Fault::capture_conflict, "another capture waits for one of its events");
    return invalidate(*capture, Fault::capture_conflict,
                      named(*stream) + " waits for an event that was recorded in another capture");
  }
  if (!capture) join(source, stream);
  add_node(*source, stream, Node{.kind = NodeKind::event_wait, .waits_for = {last.node}});
  return nullptr;
}

FailurePtr Captures::check_call(const char* call, bool own_relaxed_capture_counts) {
  if (under_way_.load(std::memory_order_relaxed) == 0) return nullptr;
  std::lock_guard lock(mutex_);
  FailurePtr failure;
  for (const auto& capture : captures_) {
    const bool own = capture->thread == std::this_thread::get_id();
    const bool relaxed = capture->mode == CaptureMode::relaxed || thread_mode == CaptureMode::relaxed;
    const bool counts = relaxed ? own && own_relaxed_capture_counts
                                : own || (capture->mode == CaptureMode::global && thread_mode == CaptureMode::global);
    if (!counts) continue;
    failure = invalidate(*capture, Fault::capture_forbids_call,
                         std::string(call) + " is not allowed while " + named(*capture->origin) + " is being captured");
  }
  return failure;
}

FailurePtr Captures::check_host_call(const char* call) { return check_call(call, false); }

FailurePtr Captures::check_device_wait(const char* call) { return check_call(call, true); }

FailurePtr Captures::refuse_if_captured(const StreamPtr& stream, const char* call) {
  if (stream->recording() != Stream::Recording::captured) return nullptr;
  std::lock_guard lock(mutex_);
  const auto capture = find(stream);
  if (!capture) return nullptr;
  return invalidate(*capture, Fault::stream_captured,
                    std::string(call) + " is not possible: " + named(*stream) + " is being captured");
}

FailurePtr Captures::refuse_if_captured(const EventPtr& event, const char* call) {
  const auto capture = event->last().capture.lock();
  if (!capture) return nullptr;
  std::lock_guard lock(mutex_);
  if (std::ranges::find(captures_, capture) == captures_.end()) return nullptr;
  return invalidate(*capture, Fault::event_captured,
                    std::string(call) + " is not possible: the event was recorded in a capture that is under way");
}

FailurePtr Captures::refuse_blocking_copy(const StreamPtr& stream) {
  if (stream->recording() != Stream::Recording::captured) return nullptr;
  std::lock_guard lock(mutex_);
  const auto capture = find(stream);
  if (!capture) return nullptr;
  return invalidate(*capture, Fault::capture_blocking_copy,
                    "a copy from or to pageable host memory has to wait for the device, and " + named(*stream) +
                        " is being captured; use pinned memory");
}

FailurePtr Captures::begin_group(const StreamPtr& stream) {
  std::lock_guard lock(mutex_);
  const auto capture = find(stream);
  if (!capture) return make_failure(Fault::stream_not_captured, named(*stream) + " is not being captured");
  if (auto failure = invalidated(*capture)) return failure;
  auto& state = capture->streams.at(stream);
  if (state.open_group >= 0) {
    return make_failure(Fault::group_status, "a task group is open on " + named(*stream) + " already");
  }
  state.open_group = capture->graph->add_group();
  return nullptr;
}

FailurePtr Captures::end_group(const StreamPtr& stream, TaskGroupPtr* group) {
  std::lock_guard lock(mutex_);
  const auto capture = find(stream);
  if (!capture) return make_failure(Fault::stream_not_captured, named(*stream) + " is not being captured");
  auto& state = capture->streams.at(stream);
  if (state.open_group < 0) {
    return make_failure(Fault::group_status, "no task group is open on " + named(*stream));
  }
  *group = capture->graph->group(state.open_group);
  (*group)->graph = capture->graph;
  state.open_group = -1;
  return invalidated(*capture);
}

FailurePtr Captures::begin_update(const StreamPtr& stream, const TaskGroupPtr& group) {
  std::lock_guard lock(mutex_);
  if (stream->recording() != Stream::Recording::none) {
    return make_failure(Fault::group_status, named(*stream) + " is being captured or updates already");
  }
  updates_.emplace(stream, Update{group, {}});
  stream->set_recording(Stream::Recording::update);
  return nullptr;
}

FailurePtr Captures::end_update(const StreamPtr& stream) {
  Update update;
  {
    std::lock_guard lock(mutex_);
    const auto it = updates_.find(stream);
    if (it == updates_.end()) {
      return make_failure(Fault::group_status, "no update is under way on " + named(*stream));
    }
    update = std::move(it->second);
    updates_.erase(it);
    stream->set_recording(Stream::Recording::none);
  }
  const auto expected = update.group->nodes.size();
  if (update.work.size() != expected) {
    return make_failure(Fault::group_update_failed,
                        "the task group has " + std::to_string(expected) + " tasks, the update gave " +
                            std::to_string(update.work.size()));
  }
  if (!runs_work_) return nullptr;
  stream->submit({.kind = Task::Kind::kernel,
                  .name = "task group update",
                  .body =
                      [update = std::move(update)]() mutable {
                        if (const auto graph = update.group->graph.lock()) {
                          graph->update(*update.group, std::move(update.work));
                        }
                      }});
  return nullptr;
}

void Captures::abandon_all() {
  std::lock_guard lock(mutex_);
  for (const auto& capture : captures_) release_streams(*capture);
  for (const auto& [stream, update] : updates_) stream->set_recording(Stream::Recording::none);
  captures_.clear();
  updates_.clear();
  under_way_ = 0;
}

}  // namespace simdevice
