// SPDX-License-Identifier: Apache-2.0
// Captures and the graphs they leave (aclmdlRI).
#include <acl/acl.h>

#include <cstdio>
#include <fstream>
#include <sstream>

#include "abi/graph_json.h"
#include "simdevice/engine/capture.h"
#include "abi/with_stream.h"
#include "runtime.h"
#include "status.h"
#include "simdevice/trace.h"

using namespace simcann;

namespace {

template <typename Action>
aclError with_graph(aclmdlRI handle, Action&& action) {
  const auto graph = Runtime::get().graphs.find(handle);
  if (graph) return fail(action(graph));
  std::ostringstream text;
  text << handle << " is not a recorded graph";
  return fail(ACL_ERROR_RT_INVALID_HANDLE, text.str());
}

bool mode_of(aclmdlRICaptureMode value, CaptureMode* mode) {
  switch (value) {
    case ACL_MODEL_RI_CAPTURE_MODE_GLOBAL:
      *mode = CaptureMode::global;
      return true;
    case ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL:
      *mode = CaptureMode::thread_local_;
      return true;
    case ACL_MODEL_RI_CAPTURE_MODE_RELAXED:
      *mode = CaptureMode::relaxed;
      return true;
  }
  return false;
}

aclmdlRICaptureMode value_of(CaptureMode mode) {
  switch (mode) {
    case CaptureMode::global:
      return ACL_MODEL_RI_CAPTURE_MODE_GLOBAL;
    case CaptureMode::thread_local_:
      return ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL;
    case CaptureMode::relaxed:
      break;
  }
  return ACL_MODEL_RI_CAPTURE_MODE_RELAXED;
}

aclError unknown_mode(int value) {
  return fail(ACL_ERROR_RT_PARAM_INVALID, "unknown capture mode " + std::to_string(value));
}

aclError no_conditions() {
  return fail(ACL_ERROR_RT_FEATURE_NOT_SUPPORT, "conditional graphs are not simulated");
}

}  // namespace

extern "C" {

aclError aclmdlRICaptureBegin(aclrtStream stream, aclmdlRICaptureMode mode) {
  if (const auto failed = entered(__func__, stream, mode)) return failed;
  CaptureMode wanted;
  if (!mode_of(mode, &wanted)) return unknown_mode(mode);
  if (stream == nullptr) {
    return fail(ACL_ERROR_RT_STREAM_CAPTURE_IMPLICIT, "the default stream cannot be captured");
  }
  return with_stream(stream, [&](const StreamPtr& target) {
    GraphPtr graph;
    auto failure = Runtime::get().captures.begin(target, wanted, &graph);
    if (!failure) Runtime::get().graphs.add(graph);
    return failure;
  });
}

aclError aclmdlRICaptureGetInfo(aclrtStream stream, aclmdlRICaptureStatus* status, aclmdlRI* modelRI) {
  return with_stream(stream, [&](const StreamPtr& target) {
    GraphPtr graph;
    switch (Runtime::get().captures.status(target, &graph)) {
      case CaptureStatus::none:
        *status = ACL_MODEL_RI_CAPTURE_STATUS_NONE;
        break;
      case CaptureStatus::active:
        *status = ACL_MODEL_RI_CAPTURE_STATUS_ACTIVE;
        break;
      case CaptureStatus::invalidated:
        *status = ACL_MODEL_RI_CAPTURE_STATUS_INVALIDATED;
        break;
    }
    *modelRI = graph.get();
    return FailurePtr{};
  });
}

aclError aclmdlRICaptureEnd(aclrtStream stream, aclmdlRI* modelRI) {
  *modelRI = nullptr;
  // Also where the end is to fail, the capture is over.
  const auto failed = entered(__func__, stream);
  const auto status = with_stream(stream, [&](const StreamPtr& target) {
    auto& runtime = Runtime::get();
    GraphPtr under_way;
    runtime.captures.status(target, &under_way);
    GraphPtr graph;
    auto failure = runtime.captures.end(target, &graph);
    const bool ended = target->recording() == Stream::Recording::none;
    if ((failure || failed) && ended && under_way) runtime.graphs.remove(under_way.get());
    if (!failed) *modelRI = graph.get();
    return failure;
  });
  return failed ? failed : status;
}

aclError aclmdlRICaptureThreadExchangeMode(aclmdlRICaptureMode* mode) {
  trace(__func__, *mode);
  CaptureMode wanted;
  if (!mode_of(*mode, &wanted)) return unknown_mode(*mode);
  *mode = value_of(Captures::exchange_thread_mode(wanted));
  return ACL_SUCCESS;
}

aclError aclmdlRIExecuteAsync(aclmdlRI modelRI, aclrtStream stream) {
  if (const auto failed = entered(__func__, modelRI, stream)) return failed;
  return with_stream(stream, [&](const StreamPtr& target) {
    auto graph = Runtime::get().graphs.find(modelRI);
    if (!graph) return make_failure(ACL_ERROR_RT_INVALID_HANDLE, "this is not a recorded graph");
    return Runtime::get().replay(std::move(graph), target);
  });
}

aclError aclmdlRIDestroy(aclmdlRI modelRI) {
  trace(__func__, modelRI);
  return with_graph(modelRI, [&](const GraphPtr& graph) {
    for (const auto& group : graph->groups()) Runtime::get().task_groups.remove(group.get());
    Runtime::get().graphs.remove(modelRI);  // replays under way hold on to it
    return FailurePtr{};
  });
}

aclError aclmdlRIGetId(aclmdlRI modelRI, uint32_t* modelRIId) {
  return with_graph(modelRI, [&](const GraphPtr& graph) {
    *modelRIId = graph->id();
    return FailurePtr{};
  });
}

aclError aclmdlRIDebugPrint(aclmdlRI modelRI) {
  return with_graph(modelRI, [&](const GraphPtr& graph) {
    std::fputs(graph_as_json(*graph).c_str(), stdout);
    return FailurePtr{};
  });
}

aclError aclmdlRIDebugJsonPrint(aclmdlRI modelRI, const char* path, uint32_t flags) {
  trace(__func__, modelRI, path, flags);
  return with_graph(modelRI, [&](const GraphPtr& graph) {
    std::ofstream file(path);
    file << graph_as_json(*graph);
    file.close();
    return file ? nullptr : make_failure(ACL_ERROR_RT_FILE_WRITE, std::string("cannot write ") + path);
  });
}

aclError aclmdlRICaptureTaskGrpBegin(aclrtStream stream) {
  trace(__func__, stream);
  return with_stream(stream, [](const StreamPtr& target) { return Runtime::get().captures.begin_group(target); });
}

aclError aclmdlRICaptureTaskGrpEnd(aclrtStream stream, aclrtTaskGrp* handle) {
  trace(__func__, stream);
  return with_stream(stream, [&](const StreamPtr& target) {
    TaskGroupPtr group;
    auto failure = Runtime::get().captures.end_group(target, &group);
    if (!failure) *handle = Runtime::get().task_groups.add(group);
    return failure;
  });
}

aclError aclmdlRICaptureTaskUpdateBegin(aclrtStream stream, aclrtTaskGrp handle) {
  trace(__func__, stream, handle);
  return with_stream(stream, [&](const StreamPtr& target) {
    const auto group = Runtime::get().task_groups.find(handle);
    if (!group || group->graph.expired()) {
      return make_failure(ACL_ERROR_RT_INVALID_HANDLE, "this is not a task group of a graph that still exists");
    }
    return Runtime::get().captures.begin_update(target, group);
  });
}

aclError aclmdlRICaptureTaskUpdateEnd(aclrtStream stream) {
  trace(__func__, stream);
  return with_stream(stream, [](const StreamPtr& target) { return Runtime::get().captures.end_update(target); });
}

aclError aclmdlRICondHandleCreate(aclmdlRI, uint32_t, aclmdlRICondHandleFlag, aclmdlRICondHandle*) {
  return no_conditions();
}

aclError aclmdlRICondHandleGetCondPtr(aclmdlRICondHandle, uint64_t**) { return no_conditions(); }

aclError aclmdlRIAddCondTask(aclmdlRICondTaskParams, aclrtStream, uint32_t) { return no_conditions(); }

aclError aclmdlRICaptureToModelRIBegin(aclrtStream, aclmdlRI, aclmdlRICaptureMode) { return no_conditions(); }

}  // extern "C"
