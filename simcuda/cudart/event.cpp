// SPDX-License-Identifier: Apache-2.0
// Events.
#include <cuda_runtime_api.h>

#include <sstream>

#include "runtime.h"
#include "status.h"

using namespace simcuda;

namespace {

FailurePtr no_such_event(const void* handle) {
  std::ostringstream text;
  text << handle << " is not an event";
  return make_failure(static_cast<Status>(cudaErrorInvalidResourceHandle), text.str());
}

template <typename Action>
cudaError_t with_event(cudaEvent_t handle, Action&& action) {
  if (in_forked_child()) return fail(used_after_fork());
  const auto event = Runtime::get().events.find(handle);
  if (!event) return fail(no_such_event(handle));
  return fail(action(event));
}

template <typename Action>
cudaError_t with_both(cudaEvent_t event_handle, cudaStream_t stream_handle, Action&& action) {
  const auto found = Runtime::get().stream(stream_handle);
  if (!found.stream) return fail(no_such_stream(stream_handle));
  return with_event(event_handle, [&](const EventPtr& event) { return action(event, found); });
}

FailurePtr record(const EventPtr& event, const Runtime::Found& at) {
  if (at.stream->recording() != Stream::Recording::none) return at.device->captures.record(at.stream, event);
  const auto point = std::make_shared<Completion>();
  event->set({.point = point, .capture = {}, .node = 0});
  at.stream->record(point);
  return nullptr;
}

FailurePtr wait(const EventPtr& event, const Runtime::Found& at) {
  const auto last = event->last();
  if (at.stream->recording() == Stream::Recording::none && last.point) {
    at.stream->wait_for(last.point);
    return nullptr;
  }
  return at.device->captures.wait(at.stream, event);
}

// A node of its own in the graph that is being captured; outside of captures such events are like all others.
FailurePtr add_external(const EventPtr& event, const Runtime::Found& at, bool waits) {
  GraphPtr graph;
  at.device->captures.status(at.stream, &graph);
  const auto external = std::make_shared<ExternalEvent>(event, waits);
  const auto kind = waits ? NodeKind::event_wait : NodeKind::event_record;
  if (auto failure = at.device->captures.add(at.stream, kind, "external", [external] { external->run(); })) {
    return failure;
  }
  Runtime::get().add_external_event(graph, external);
  return nullptr;
}

// An event recorded in a capture cannot be asked about, and asking about any is refused while captures forbid it.
FailurePtr refuse_question(const EventPtr& event, const char* call) {
  auto& runtime = Runtime::get();
  for (int i = 0; i < runtime.device_count(); ++i) {
    if (auto failure = runtime.device(i).captures.refuse_if_captured(event, call)) return failure;
  }
  return runtime.check_host_call(call);
}

FailurePtr time_of(const EventPtr& event, std::uint64_t* ns) {
  if ((event->flags() & cudaEventDisableTiming) != 0) {
    return make_failure(static_cast<Status>(cudaErrorInvalidResourceHandle), "the event was made without timing");
  }
  const auto point = event->last().point;
  if (!point) {
    return make_failure(static_cast<Status>(cudaErrorInvalidResourceHandle), "the event has not been recorded");
  }
  if (!point->finished()) return make_failure(static_cast<Status>(cudaErrorNotReady), "the event is not complete");
  *ns = point->finished_at_ns();
  return nullptr;
}

}  // namespace

extern "C" {

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags) {
  if (const auto failed = entered(__func__, flags)) return failed;
  *event = static_cast<cudaEvent_t>(Runtime::get().events.add(std::make_shared<Event>(flags)));
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, cudaEventDefault); }

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  if (const auto failed = entered(__func__, event)) return failed;
  return Runtime::get().events.remove(event) ? cudaSuccess : fail(no_such_event(event));
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (const auto failed = entered(__func__, event, stream)) return failed;
  return with_both(event, stream, record);
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned int flags) {
  if (const auto failed = entered(__func__, event, stream, flags)) return failed;
  return with_both(event, stream, [&](const EventPtr& target, const Runtime::Found& at) {
    const bool captured = at.stream->recording() != Stream::Recording::none;
    return flags == cudaEventRecordExternal && captured ? add_external(target, at, false) : record(target, at);
  });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags) {
  if (const auto failed = entered(__func__, stream, event, flags)) return failed;
  return with_both(event, stream, [&](const EventPtr& target, const Runtime::Found& at) {
    const bool captured = at.stream->recording() != Stream::Recording::none;
    return flags == cudaEventWaitExternal && captured ? add_external(target, at, true) : wait(target, at);
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (const auto failed = entered(__func__, event)) return failed;
  return with_event(event, [](const EventPtr& target) {
    if (auto failure = refuse_question(target, "cudaEventSynchronize")) return failure;
    const auto point = target->last().point;
    if (!point) return FailurePtr{};
    point->wait();
    return point->failure();
  });
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (const auto failed = entered(__func__, event)) return failed;
  const auto found = Runtime::get().events.find(event);
  if (!found) return fail(no_such_event(event));
  if (auto failure = refuse_question(found, "cudaEventQuery")) return fail(failure);
  const auto point = found->last().point;
  // Not a failure, but like one it is what cudaGetLastError gives.
  if (point && !point->finished()) return fail(cudaErrorNotReady, "the event is not complete");
  return point ? fail(point->failure()) : cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t start, cudaEvent_t end) {
  if (const auto failed = entered(__func__, start, end)) return failed;
  return with_event(start, [&](const EventPtr& first) {
    const auto second = Runtime::get().events.find(end);
    if (!second) return no_such_event(end);
    std::uint64_t start_ns = 0;
    std::uint64_t end_ns = 0;
    if (auto failure = time_of(first, &start_ns)) return failure;
    if (auto failure = time_of(second, &end_ns)) return failure;
    constexpr float ns_per_ms = 1e6F;
    *ms = static_cast<float>(static_cast<std::int64_t>(end_ns - start_ns)) / ns_per_ms;
    return FailurePtr{};
  });
}

}  // extern "C"
