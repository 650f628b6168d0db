// SPDX-License-Identifier: Apache-2.0
// Events, and waits for numbers in memory.
#include <acl/acl.h>

#include <sstream>
#include <utility>

#include "simdevice/engine/capture.h"
#include "runtime.h"
#include "status.h"
#include "simdevice/trace.h"

using namespace simcann;

namespace {

FailurePtr no_such_event(const void* handle) {
  std::ostringstream text;
  text << handle << " is not an event";
  return make_failure(ACL_ERROR_RT_PARAM_INVALID, text.str());
}

template <typename Action>
aclError with_event(aclrtEvent handle, Action&& action) {
  const auto event = Runtime::get().events.find(handle);
  if (!event) return fail(no_such_event(handle));
  return fail(action(event));
}

template <typename Action>
aclError with_both(aclrtEvent event_handle, aclrtStream stream_handle, Action&& action) {
  const auto stream = Runtime::get().stream(stream_handle);
  if (!stream) return fail(no_such_stream(stream_handle));
  return with_event(event_handle, [&](const EventPtr& event) { return action(event, stream); });
}

std::string address_text(const void* address) { return std::to_string(reinterpret_cast<std::uintptr_t>(address)); }

bool is_external(const Event& event) { return (event.flags() & ACL_EVENT_EXTERNAL) != 0; }

// External events carry a number, 1 once recorded and 0 again after a reset, and are never joined to a capture.
FailurePtr set_external(const EventPtr& event, const StreamPtr& stream, NodeKind kind, std::uint64_t value) {
  auto write = [event, value] { write_value(event->cell(), value); };
  return Runtime::get().enqueue(stream, kind, address_text(event.get()), std::move(write));
}

FailurePtr record(const EventPtr& event, const StreamPtr& stream) {
  if (in_forked_child()) return used_after_fork();
  if (is_external(*event)) return set_external(event, stream, NodeKind::event_record, 1);
  if (stream->recording() != Stream::Recording::none) return Runtime::get().captures.record(stream, event);
  const auto point = std::make_shared<Completion>();
  event->set({.point = point, .capture = {}, .node = 0});
  stream->record(point);
  return nullptr;
}

FailurePtr wait(const EventPtr& event, const StreamPtr& stream) {
  if (in_forked_child()) return used_after_fork();
  if (is_external(*event)) {
    // The work does nothing but keep the event alive as long as the wait.
    return Runtime::get().enqueue(stream, NodeKind::event_wait, address_text(event.get()), [event] {},
                                  {.cell = event->cell(), .test = ValueTest::equal, .expected = 1});
  }
  const auto last = event->last();
  if (stream->recording() == Stream::Recording::none && last.point) {
    stream->wait_for(last.point);
    return nullptr;
  }
  return Runtime::get().captures.wait(stream, event);
}

FailurePtr synchronize(const EventPtr& event, Deadline deadline) {
  if (in_forked_child()) return used_after_fork();
  if (auto failure = Runtime::get().captures.refuse_if_captured(event, "synchronising")) return failure;
  const auto point = event->last().point;
  if (!point) return nullptr;
  if (!point->wait(deadline)) return make_failure(ACL_ERROR_RT_EVENT_SYNC_TIMEOUT, "the event was not done in time");
  return point->failure();
}

// An event that was never recorded has nothing to wait for.
FailurePtr is_done(const EventPtr& event, bool* done) {
  if (auto failure = Runtime::get().captures.refuse_if_captured(event, "querying")) return failure;
  const auto point = event->last().point;
  *done = is_external(*event) ? read_value(event->cell()) != 0 : !point || point->finished();
  return nullptr;
}

FailurePtr time_of(const EventPtr& event, std::uint64_t* ns) {
  const auto point = event->last().point;
  if (!point) return make_failure(ACL_ERROR_RT_EVENT_TIMESTAMP_INVALID, "the event has not been recorded");
  if (!point->finished()) return make_failure(ACL_ERROR_RT_EVENT_NOT_COMPLETE, "the event is not complete");
  *ns = point->finished_at_ns();
  return nullptr;
}

// The cell behind a device address; nothing if it is not 8 aligned bytes of allocated device memory.
FailurePtr cell_at(void* device, std::uint64_t** cell) {
  const auto& memory = Runtime::get().memory;
  if (reinterpret_cast<std::uintptr_t>(device) % sizeof(std::uint64_t) != 0) {
    return make_failure(ACL_ERROR_RT_ADDR_UNALIGNED, "a value in memory must be aligned to 8 bytes");
  }
  if (auto failure = memory.check_range(device, sizeof(std::uint64_t))) return failure;
  *cell = static_cast<std::uint64_t*>(memory.host_view(device));
  return nullptr;
}

bool test_of(std::uint32_t flag, ValueTest* test) {
  switch (flag) {
    case ACL_STREAM_WAIT_VALUE_GEQ:
      *test = ValueTest::at_least;
      return true;
    case ACL_STREAM_WAIT_VALUE_EQ:
      *test = ValueTest::equal;
      return true;
    case ACL_STREAM_WAIT_VALUE_AND:
      *test = ValueTest::any_bit;
      return true;
    case ACL_STREAM_WAIT_VALUE_NOR:
      *test = ValueTest::nor;
      return true;
    default:
      return false;
  }
}

}  // namespace

extern "C" {

aclError aclrtCreateEventExWithFlag(aclrtEvent* event, uint32_t flag) {
  trace(__func__, flag);
  *event = Runtime::get().events.add(std::make_shared<Event>(flag));
  return ACL_SUCCESS;
}

aclError aclrtCreateEventWithFlag(aclrtEvent* event, uint32_t flag) { return aclrtCreateEventExWithFlag(event, flag); }

aclError aclrtCreateEvent(aclrtEvent* event) {
  return aclrtCreateEventExWithFlag(event, ACL_EVENT_SYNC | ACL_EVENT_TIME_LINE);
}

aclError aclrtDestroyEvent(aclrtEvent event) {
  trace(__func__, event);
  return Runtime::get().events.remove(event) ? ACL_SUCCESS : fail(no_such_event(event));
}

aclError aclrtRecordEvent(aclrtEvent event, aclrtStream stream) {
  trace(__func__, event, stream);
  return with_both(event, stream, record);
}

aclError aclrtStreamWaitEvent(aclrtStream stream, aclrtEvent event) {
  trace(__func__, stream, event);
  return with_both(event, stream, wait);
}

aclError aclrtStreamWaitEventWithTimeout(aclrtStream stream, aclrtEvent event, int32_t) {
  return aclrtStreamWaitEvent(stream, event);
}

aclError aclrtResetEvent(aclrtEvent event, aclrtStream stream) {
  trace(__func__, event, stream);
  return with_both(event, stream, [](const EventPtr& target, const StreamPtr& on) {
    // Other events can be recorded again at any time; there is nothing to reset.
    return is_external(*target) ? set_external(target, on, NodeKind::event_reset, 0) : nullptr;
  });
}

aclError aclrtSynchronizeEventWithTimeout(aclrtEvent event, int32_t timeout) {
  trace(__func__, event, timeout);
  return with_event(event, [&](const EventPtr& target) { return synchronize(target, deadline_after(timeout)); });
}

aclError aclrtSynchronizeEvent(aclrtEvent event) { return aclrtSynchronizeEventWithTimeout(event, -1); }

aclError aclrtQueryEventStatus(aclrtEvent event, aclrtEventRecordedStatus* status) {
  trace(__func__, event);
  return with_event(event, [&](const EventPtr& target) {
    bool done = false;
    auto failure = is_done(target, &done);
    *status = done ? ACL_EVENT_RECORDED_STATUS_COMPLETE : ACL_EVENT_RECORDED_STATUS_NOT_READY;
    return failure;
  });
}

aclError aclrtQueryEventWaitStatus(aclrtEvent event, aclrtEventWaitStatus* status) {
  trace(__func__, event);
  return with_event(event, [&](const EventPtr& target) {
    bool done = false;
    auto failure = is_done(target, &done);
    *status = done ? ACL_EVENT_WAIT_STATUS_COMPLETE : ACL_EVENT_WAIT_STATUS_NOT_READY;
    return failure;
  });
}

aclError aclrtEventElapsedTime(float* ms, aclrtEvent startEvent, aclrtEvent endEvent) {
  trace(__func__, startEvent, endEvent);
  return with_event(startEvent, [&](const EventPtr& start) {
    const auto end = Runtime::get().events.find(endEvent);
    if (!end) return no_such_event(endEvent);
    std::uint64_t start_ns = 0;
    std::uint64_t end_ns = 0;
    if (auto failure = time_of(start, &start_ns)) return failure;
    if (auto failure = time_of(end, &end_ns)) return failure;
    constexpr float ns_per_ms = 1e6F;
    *ms = static_cast<float>(static_cast<std::int64_t>(end_ns - start_ns)) / ns_per_ms;
    return FailurePtr{};
  });
}

aclError aclrtEventGetTimestamp(aclrtEvent event, uint64_t* timestamp) {
  trace(__func__, event);
  return with_event(event, [&](const EventPtr& target) {
    constexpr std::uint64_t ns_per_us = 1000;
    std::uint64_t ns = 0;
    auto failure = time_of(target, &ns);
    *timestamp = ns / ns_per_us;
    return failure;
  });
}

aclError aclrtValueWrite(void* devAddr, uint64_t value, uint32_t flag, aclrtStream stream) {
  trace(__func__, devAddr, value, flag, stream);
  const auto target = Runtime::get().stream(stream);
  if (!target) return fail(no_such_stream(stream));
  std::uint64_t* cell = nullptr;
  if (auto failure = cell_at(devAddr, &cell)) return fail(failure);
  return fail(Runtime::get().enqueue(target, NodeKind::value_write, address_text(devAddr),
                                     [cell, value] { write_value(cell, value); }));
}

aclError aclrtValueWait(void* devAddr, uint64_t value, uint32_t flag, aclrtStream stream) {
  trace(__func__, devAddr, value, flag, stream);
  const auto target = Runtime::get().stream(stream);
  if (!target) return fail(no_such_stream(stream));
  ValueWait wait{.expected = value};
  if (!test_of(flag, &wait.test)) {
    return fail(ACL_ERROR_RT_PARAM_INVALID, "unknown kind of value wait: " + std::to_string(flag));
  }
  if (auto failure = cell_at(devAddr, &wait.cell)) return fail(failure);
  return fail(Runtime::get().enqueue(target, NodeKind::value_wait, address_text(devAddr), {}, wait));
}

}  // extern "C"
