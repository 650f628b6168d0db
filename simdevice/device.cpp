// SPDX-License-Identifier: Apache-2.0
#include "simdevice/device.h"

#include <sstream>

#include "simdevice/trace.h"

namespace simdevice {
namespace {

constexpr std::chrono::seconds patience_for_running_work{3};

}  // namespace

Device::Device(const DeviceSettings& settings)
    : memory(settings.memory_nbytes),
      captures(settings.kernels_enabled),
      settings_(settings),
      turnstile_(settings.schedule),
      lane_threads_(workers_),
      stream_context_{.workers = workers_, .turnstile = turnstile_, .runs_tasks = settings.kernels_enabled},
      default_stream_(std::make_shared<Stream>(stream_context_, 0, 0, 0)) {}

std::shared_ptr<Stream> Device::stream(void* handle) {
  return handle == nullptr ? default_stream_ : streams_.find(handle);
}

FailurePtr Device::create_stream(std::uint32_t priority, std::uint32_t flags, void** handle) {
  note_use();
  const auto limit = settings_.stream_limit;
  if (stream_count_.fetch_add(1) >= limit) {
    stream_count_.fetch_sub(1);
    return make_failure(Fault::no_stream_left,
                        "no stream left: all " + std::to_string(limit) + " are in use (" + settings_.prefix + "_STREAMS)");
  }
  *handle = streams_.add(std::make_shared<Stream>(stream_context_, next_stream_id_.fetch_add(1), priority, flags));
  return nullptr;
}

FailurePtr Device::destroy_stream(void* handle, bool force) {
  const auto stream = streams_.find(handle);
  if (!stream) return no_such_stream(handle);
  if (auto failure = captures.refuse_if_captured(stream, "destroying the stream")) return failure;
  if (!streams_.remove(handle)) return no_such_stream(handle);
  stream_count_.fetch_sub(1);
  if (force) abort_work({stream});
  return nullptr;
}

FailurePtr Device::enqueue(const StreamPtr& stream, NodeKind kind, std::string name, std::function<void()> work,
                            ValueWait value_wait) {
  if (in_forked_child()) return used_after_fork();
  note_use();
  if (stream->recording() != Stream::Recording::none) {
    return captures.add(stream, kind, std::move(name), std::move(work), value_wait);
  }
  if (value_wait.cell != nullptr) {
    work = [value_wait, work = std::move(work), give_up = until_unwanted(stream)] {
      wait_for_value(value_wait.cell, value_wait.test, value_wait.expected, give_up);
      if (work) work();
    };
  }
  stream->submit({.kind = Task::Kind::kernel, .name = std::move(name), .body = std::move(work)});
  return nullptr;
}

FailurePtr Device::replay(GraphPtr graph, const StreamPtr& stream) {
  if (auto failure = captures.refuse_if_captured(stream, "replaying a graph")) return failure;
  if (!settings_.kernels_enabled) return nullptr;
  return enqueue(stream, NodeKind::kernel, "graph replay",
                 [this, graph = std::move(graph), give_up = until_unwanted(stream)] {
                   auto failure = graph->run(settings_.schedule, give_up, lane_threads_);
                   if (failure) throw DeviceFault(failure);
                 });
}

std::function<bool()> Device::until_unwanted(const StreamPtr& stream) {
  return [this, stream, clear_count = stream->clear_count()] {
    return workers_.stopping() || stream->clear_count() != clear_count;
  };
}

std::vector<std::shared_ptr<Stream>> Device::streams() {
  auto result = streams_.all();
  result.push_back(default_stream_);
  return result;
}

std::uint32_t Device::streams_left() const { return settings_.stream_limit - stream_count_.load(); }

void Device::reset() {
  captures.abandon_all();
  abort_work(streams());
}

// What is running cannot be stopped, and its memory may be freed as soon as this returns; so it is waited for.
void Device::abort_work(const std::vector<StreamPtr>& aborted) {
  for (const auto& stream : aborted) stream->clear();
  const auto deadline = std::chrono::steady_clock::now() + patience_for_running_work;
  for (const auto& stream : aborted) {
    if (!in_forked_child()) stream->synchronize(deadline);
  }
}

void Device::shut_down() {
  if (in_forked_child()) return;
  workers_.request_stop();
  for (const auto& stream : streams()) stream->wake();
  lane_threads_.wake();
  workers_.wait_until_left(patience_for_running_work);
}

FailurePtr no_such_stream(const void* handle) {
  std::ostringstream text;
  text << handle << " is not a stream";
  return make_failure(Fault::no_such_stream, text.str());
}

FailurePtr used_after_fork() {
  return make_failure(Fault::used_after_fork,
                      "this process was forked from one that used the device, whose threads do not exist here; use "
                      "the start method 'spawn'");
}

}  // namespace simdevice
