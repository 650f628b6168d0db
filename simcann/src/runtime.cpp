// SPDX-License-Identifier: Apache-2.0
#include "runtime.h"

#include <cstdlib>
#include <sstream>

#include "device.h"
#include "settings.h"
#include "status.h"
#include "trace.h"

namespace simcann {
namespace {

constexpr std::chrono::seconds patience_for_running_work{3};

}  // namespace

Runtime& Runtime::get() {
  static Runtime& runtime = *new Runtime;
  return runtime;
}

Runtime::Runtime()
    : memory(settings().memory_nbytes),
      captures(settings().kernels_enabled),
      turnstile_(settings().schedule),
      lane_threads_(workers_),
      stream_context_{.workers = workers_, .turnstile = turnstile_, .runs_tasks = settings().kernels_enabled},
      default_stream_(std::make_shared<Stream>(stream_context_, 0, 0, 0)) {
  // Registered after the libraries that kernels use were loaded, so it runs before their own end.
  std::atexit([] { get().shut_down(); });
}

std::shared_ptr<Stream> Runtime::stream(void* handle) {
  return handle == nullptr ? default_stream_ : streams_.find(handle);
}

FailurePtr Runtime::create_stream(std::uint32_t priority, std::uint32_t flags, void** handle) {
  const auto limit = settings().stream_limit;
  if (stream_count_.fetch_add(1) >= limit) {
    stream_count_.fetch_sub(1);
    return make_failure(ACL_ERROR_RT_NO_STREAM_RESOURCE,
                        "no stream left: all " + std::to_string(limit) + " are in use (SIMCANN_STREAMS)");
  }
  *handle = streams_.add(std::make_shared<Stream>(stream_context_, next_stream_id_.fetch_add(1), priority, flags));
  return nullptr;
}

FailurePtr Runtime::destroy_stream(void* handle, bool force) {
  const auto stream = streams_.find(handle);
  if (!stream) return no_such_stream(handle);
  if (auto failure = captures.refuse_if_captured(stream, "destroying the stream")) return failure;
  if (!streams_.remove(handle)) return no_such_stream(handle);
  stream_count_.fetch_sub(1);
  if (force) abort_work({stream});
  return nullptr;
}

FailurePtr Runtime::enqueue(const StreamPtr& stream, NodeKind kind, std::string name, std::function<void()> work,
                            ValueWait value_wait) {
  if (in_forked_child()) return used_after_fork();
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

FailurePtr Runtime::replay(GraphPtr graph, const StreamPtr& stream) {
  if (auto failure = captures.refuse_if_captured(stream, "replaying a graph")) return failure;
  if (!settings().kernels_enabled) return nullptr;
  return enqueue(stream, NodeKind::kernel, "graph replay",
                 [this, graph = std::move(graph), give_up = until_unwanted(stream)] {
                   auto failure = graph->run(settings().schedule, give_up, lane_threads_);
                   if (failure) throw DeviceFault(failure);
                 });
}

std::function<bool()> Runtime::until_unwanted(const StreamPtr& stream) {
  return [this, stream, clear_count = stream->clear_count()] {
    return workers_.stopping() || stream->clear_count() != clear_count;
  };
}

std::vector<std::shared_ptr<Stream>> Runtime::streams() {
  auto result = streams_.all();
  result.push_back(default_stream_);
  return result;
}

std::uint32_t Runtime::streams_left() const { return settings().stream_limit - stream_count_.load(); }

void Runtime::reset() {
  captures.abandon_all();
  abort_work(streams());
}

// What is running cannot be stopped, and its memory may be freed as soon as this returns; so it is waited for.
void Runtime::abort_work(const std::vector<StreamPtr>& aborted) {
  for (const auto& stream : aborted) stream->clear();
  const auto deadline = std::chrono::steady_clock::now() + patience_for_running_work;
  for (const auto& stream : aborted) {
    if (!in_forked_child()) stream->synchronize(deadline);
  }
}

void Runtime::shut_down() {
  if (in_forked_child()) return;
  workers_.request_stop();
  for (const auto& stream : streams()) stream->wake();
  lane_threads_.wake();
  workers_.wait_until_left(patience_for_running_work);
}

FailurePtr no_such_stream(const void* handle) {
  std::ostringstream text;
  text << handle << " is not a stream";
  return make_failure(ACL_ERROR_RT_STREAM_CONTEXT, text.str());
}

FailurePtr used_after_fork() {
  return make_failure(ACL_ERROR_RT_CONTEXT_NULL,
                      "this process was forked from one that used the device, whose threads do not exist here; use "
                      "the start method 'spawn'");
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
