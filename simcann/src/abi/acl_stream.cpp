// SPDX-License-Identifier: Apache-2.0
// Streams and what waits for them.
#include <acl/acl.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "simdevice/engine/capture.h"
#include "abi/with_stream.h"
#include "runtime.h"
#include "settings.h"
#include "status.h"
#include "simdevice/trace.h"

using namespace simcann;

namespace {

// With the kernels off nothing runs on streams, but what the host asked to be called must still be called.
aclError enqueue_host_function(aclrtStream handle, const char* name, std::function<void()> function) {
  const auto stream = Runtime::get().stream(handle);
  if (!stream) return fail(no_such_stream(handle));
  if (!settings().kernels_enabled && stream->recording() == Stream::Recording::none) {
    function();
    return ACL_SUCCESS;
  }
  return fail(Runtime::get().enqueue(stream, NodeKind::host_function, name, std::move(function)));
}

FailurePtr synchronize(const StreamPtr& stream, Deadline deadline) {
  if (in_forked_child()) return used_after_fork();
  if (!stream->synchronize(deadline)) {
    return make_failure(ACL_ERROR_RT_STREAM_SYNC_TIMEOUT,
                        "stream " + std::to_string(stream->id()) + " was not done in time");
  }
  return stream->failure();
}

FailurePtr synchronize_device(Deadline deadline) {
  FailurePtr first;
  for (const auto& stream : Runtime::get().streams()) {
    auto failure = synchronize(stream, deadline);
    if (failure && !first) first = std::move(failure);
  }
  return first;
}

}  // namespace

extern "C" {

aclError aclrtCreateStreamWithConfig(aclrtStream* stream, uint32_t priority, uint32_t flag) {
  trace(__func__, priority, flag);
  return fail(Runtime::get().create_stream(priority, flag, stream));
}

aclError aclrtCreateStream(aclrtStream* stream) { return aclrtCreateStreamWithConfig(stream, 0, 0); }

aclError aclrtDestroyStream(aclrtStream stream) {
  trace(__func__, stream);
  return fail(Runtime::get().destroy_stream(stream, false));
}

aclError aclrtDestroyStreamForce(aclrtStream stream) {
  trace(__func__, stream);
  return fail(Runtime::get().destroy_stream(stream, true));
}

aclError aclrtStreamAbort(aclrtStream stream) {
  trace(__func__, stream);
  return with_stream(stream, [](const StreamPtr& target) {
    target->clear();
    return ACL_SUCCESS;
  });
}

aclError aclrtSynchronizeStreamWithTimeout(aclrtStream stream, int32_t timeout) {
  trace(__func__, stream, timeout);
  return with_stream(stream, [&](const StreamPtr& target) {
    if (auto failure = Runtime::get().captures.refuse_if_captured(target, "synchronising")) return fail(failure);
    return fail(synchronize(target, deadline_after(timeout)));
  });
}

aclError aclrtSynchronizeStream(aclrtStream stream) { return aclrtSynchronizeStreamWithTimeout(stream, -1); }

aclError aclrtSynchronizeDeviceWithTimeout(int32_t timeout) {
  trace(__func__, timeout);
  if (auto failure = Runtime::get().captures.check_device_wait("synchronising the device")) return fail(failure);
  return fail(synchronize_device(deadline_after(timeout)));
}

aclError aclrtSynchronizeDevice() { return aclrtSynchronizeDeviceWithTimeout(-1); }

aclError aclrtStreamQuery(aclrtStream stream, aclrtStreamStatus* status) {
  trace(__func__, stream);
  return with_stream(stream, [&](const StreamPtr& target) {
    if (auto failure = Runtime::get().captures.refuse_if_captured(target, "querying")) return fail(failure);
    *status = target->idle() ? ACL_STREAM_STATUS_COMPLETE : ACL_STREAM_STATUS_NOT_READY;
    return fail(target->failure());
  });
}

aclError aclrtStreamGetId(aclrtStream stream, int32_t* streamId) {
  return with_stream(stream, [&](const StreamPtr& target) {
    *streamId = target->id();
    return ACL_SUCCESS;
  });
}

aclError aclrtStreamGetPriority(aclrtStream stream, uint32_t* priority) {
  return with_stream(stream, [&](const StreamPtr& target) {
    *priority = target->priority();
    return ACL_SUCCESS;
  });
}

aclError aclrtStreamGetFlags(aclrtStream stream, uint32_t* flags) {
  return with_stream(stream, [&](const StreamPtr& target) {
    *flags = target->flags();
    return ACL_SUCCESS;
  });
}

aclError aclrtSetStreamFailureMode(aclrtStream stream, uint64_t mode) {
  trace(__func__, stream, mode);
  return with_stream(stream, [&](const StreamPtr& target) {
    target->set_on_failure(mode == ACL_STOP_ON_FAILURE ? Stream::OnFailure::stop : Stream::OnFailure::go_on);
    return ACL_SUCCESS;
  });
}

aclError aclrtSetStreamAttribute(aclrtStream stream, aclrtStreamAttr stmAttrType, aclrtStreamAttrValue* value) {
  trace(__func__, stream, stmAttrType);
  if (stmAttrType == ACL_STREAM_ATTR_FAILURE_MODE) return aclrtSetStreamFailureMode(stream, value->failureMode);
  return with_stream(stream, [&](const StreamPtr& target) {
    if (stmAttrType == ACL_STREAM_ATTR_PRIORITY) target->set_priority(value->streamPriority);
    return ACL_SUCCESS;  // the others have nothing to act on here
  });
}

aclError aclrtSetStreamOverflowSwitch(aclrtStream stream, uint32_t flag) {
  trace(__func__, stream, flag);
  return ACL_SUCCESS;
}

aclError aclrtGetStreamOverflowSwitch(aclrtStream, uint32_t* flag) {
  *flag = 0;
  return ACL_SUCCESS;
}

aclError aclrtGetStreamAvailableNum(uint32_t* streamCount) {
  *streamCount = Runtime::get().streams_left();
  return ACL_SUCCESS;
}

aclError aclrtDeviceGetStreamPriorityRange(int32_t* leastPriority, int32_t* greatestPriority) {
  *leastPriority = 7;
  *greatestPriority = 0;
  return ACL_SUCCESS;
}

aclError aclrtLaunchHostFunc(aclrtStream stream, aclrtHostFunc fn, void* args) {
  trace(__func__, stream, reinterpret_cast<void*>(fn), args);
  return enqueue_host_function(stream, "host function", [=] { fn(args); });
}

// The callback runs on the stream's thread, whichever thread subscribed for it; ACL_CALLBACK_NO_BLOCK may as well
// block. So there are no reports to process, and subscriptions only have to be accepted.
aclError aclrtLaunchCallback(aclrtCallback fn, void* userData, aclrtCallbackBlockType blockType, aclrtStream stream) {
  trace(__func__, reinterpret_cast<void*>(fn), userData, blockType, stream);
  return enqueue_host_function(stream, "callback", [=] { fn(userData); });
}

aclError aclrtSubscribeReport(uint64_t threadId, aclrtStream stream) {
  trace(__func__, threadId, stream);
  return ACL_SUCCESS;
}

aclError aclrtUnSubscribeReport(uint64_t threadId, aclrtStream stream) {
  trace(__func__, threadId, stream);
  return ACL_SUCCESS;
}

// None ever arrives. Callers ask in a loop, so it takes the time they allow.
aclError aclrtProcessReport(int32_t timeout) {
  constexpr int32_t longest_ms = 100;
  std::this_thread::sleep_for(std::chrono::milliseconds(timeout < 0 ? longest_ms : std::min(timeout, longest_ms)));
  return ACL_ERROR_RT_REPORT_TIMEOUT;
}

}  // extern "C"
