// SPDX-License-Identifier: Apache-2.0
// Captures, graphs, and what is made of them.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "device.h"
#include "executable.h"
#include "runtime.h"
#include "status.h"
#include "with_stream.h"

using namespace simcuda;

namespace {

template <typename Action>
cudaError_t with_graph(cudaGraph_t handle, Action&& action) {
  const auto graph = Runtime::get().graphs.find(handle);
  if (graph) return action(graph);
  std::ostringstream text;
  text << handle << " is not a graph";
  return fail(cudaErrorInvalidValue, text.str());
}

bool mode_of(cudaStreamCaptureMode value, CaptureMode* mode) {
  switch (value) {
    case cudaStreamCaptureModeGlobal:
      *mode = CaptureMode::global;
      return true;
    case cudaStreamCaptureModeThreadLocal:
      *mode = CaptureMode::thread_local_;
      return true;
    case cudaStreamCaptureModeRelaxed:
      *mode = CaptureMode::relaxed;
      return true;
  }
  return false;
}

cudaStreamCaptureMode value_of(CaptureMode mode) {
  switch (mode) {
    case CaptureMode::global:
      return cudaStreamCaptureModeGlobal;
    case CaptureMode::thread_local_:
      return cudaStreamCaptureModeThreadLocal;
    case CaptureMode::relaxed:
      break;
  }
  return cudaStreamCaptureModeRelaxed;
}

cudaError_t unknown_mode(int value) {
  return fail(cudaErrorInvalidValue, "unknown capture mode " + std::to_string(value));
}

cudaStreamCaptureStatus value_of(CaptureStatus status) {
  switch (status) {
    case CaptureStatus::active:
      return cudaStreamCaptureStatusActive;
    case CaptureStatus::invalidated:
      return cudaStreamCaptureStatusInvalidated;
    case CaptureStatus::none:
      break;
  }
  return cudaStreamCaptureStatusNone;
}

}  // namespace

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  if (const auto failed = entered(__func__, stream, static_cast<int>(mode))) return failed;
  CaptureMode wanted;
  if (!mode_of(mode, &wanted)) return unknown_mode(mode);
  if (reinterpret_cast<std::uintptr_t>(stream) <= 1) {
    return fail(cudaErrorStreamCaptureUnsupported, "the default stream cannot be captured");
  }
  return with_stream(stream, [&](const auto& found) {
    GraphPtr graph;
    auto failure = found.device->captures.begin(found.stream, wanted, &graph);
    if (!failure) Runtime::get().graphs.add(graph);
    return failure;
  });
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* result) {
  *result = nullptr;
  // Also where the end is to fail, the capture is over.
  const auto failed = entered(__func__, stream);
  const auto status = with_stream(stream, [&](const auto& found) {
    GraphPtr under_way;
    found.device->captures.status(found.stream, &under_way);
    GraphPtr graph;
    auto failure = found.device->captures.end(found.stream, &graph);
    const bool ended = found.stream->recording() == Stream::Recording::none;
    if ((failure || failed) && ended && under_way) Runtime::get().graphs.remove(under_way.get());
    if (!failed) *result = reinterpret_cast<cudaGraph_t>(graph.get());
    return failure;
  });
  return failed ? failed : status;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  return with_stream(stream, [&](const auto& found) {
    GraphPtr graph;
    *status = value_of(found.device->captures.status(found.stream, &graph));
    return FailurePtr{};
  });
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status, unsigned long long* id,
                                     cudaGraph_t* graph, const cudaGraphNode_t** dependencies,
                                     const cudaGraphEdgeData** edges, size_t* dependency_count) {
  return with_stream(stream, [&](const auto& found) {
    GraphPtr under_way;
    *status = value_of(found.device->captures.status(found.stream, &under_way));
    if (id != nullptr) *id = under_way ? under_way->id() : 0;
    if (graph != nullptr) *graph = reinterpret_cast<cudaGraph_t>(under_way.get());
    if (dependencies != nullptr) *dependencies = nullptr;
    if (edges != nullptr) *edges = nullptr;
    if (dependency_count != nullptr) *dependency_count = 0;
    return FailurePtr{};
  });
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  CaptureMode wanted;
  if (!mode_of(*mode, &wanted)) return unknown_mode(*mode);
  *mode = value_of(Captures::exchange_thread_mode(wanted));
  return cudaSuccess;
}

cudaError_t cudaGraphGetNodes(cudaGraph_t handle, cudaGraphNode_t* nodes, size_t* count) {
  return with_graph(handle, [&](const GraphPtr& graph) {
    if (nodes != nullptr) return fail(cudaErrorNotSupported, "the nodes of a graph are not simulated, only counted");
    // Events of the capture are only dependencies to CUDA.
    const auto is_node = [](const Node& node) {
      const bool is_event = node.kind == NodeKind::event_record || node.kind == NodeKind::event_wait;
      return !is_event || !node.name.empty();
    };
    *count = static_cast<std::size_t>(std::count_if(graph->nodes().begin(), graph->nodes().end(), is_node));
    return cudaSuccess;
  });
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* result, cudaGraph_t handle, unsigned long long flags) {
  *result = nullptr;
  if (const auto failed = entered(__func__, handle, flags)) return failed;
  return with_graph(handle, [&](const GraphPtr& graph) {
    *result = static_cast<cudaGraphExec_t>(executables().add(std::make_shared<Executable>(
        Executable{graph, Runtime::get().external_events_of(graph)})));
    return cudaSuccess;
  });
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t handle, cudaStream_t stream) {
  if (const auto failed = entered(__func__, handle, stream)) return failed;
  const auto executable = executables().find(handle);
  if (!executable) return fail(cudaErrorInvalidValue, "this is not an instantiated graph");
  return with_stream(stream, [&](const auto& found) {
    if (kernels_enabled()) {
      for (const auto& event : executable->external_events) event->launched();
    }
    return found.device->replay(executable->graph, found.stream);
  });
}

cudaError_t cudaGraphDestroy(cudaGraph_t handle) {
  if (const auto failed = entered(__func__, handle)) return failed;
  return with_graph(handle, [&](const GraphPtr& graph) {
    Runtime::get().forget_external_events(graph.get());
    Runtime::get().graphs.remove(handle);  // replays under way and executables hold on to it
    return cudaSuccess;
  });
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t handle) {
  if (const auto failed = entered(__func__, handle)) return failed;
  if (!executables().remove(handle)) return fail(cudaErrorInvalidValue, "this is not an instantiated graph");
  return cudaSuccess;
}

cudaError_t cudaGraphDebugDotPrint(cudaGraph_t handle, const char* path, unsigned int flags) {
  if (const auto failed = entered(__func__, handle, path, flags)) return failed;
  return with_graph(handle, [&](const GraphPtr& graph) {
    std::ofstream file(path);
    file << "digraph graph_" << graph->id() << " {\n";
    std::vector<std::int64_t> last(graph->lane_count(), -1);
    for (std::size_t i = 0; i < graph->nodes().size(); ++i) {
      const auto& node = graph->nodes()[i];
      file << "  n" << i << " [label=\"" << name_of(node.kind) << " " << node.name << "\"];\n";
      if (last[node.lane] >= 0) file << "  n" << last[node.lane] << " -> n" << i << ";\n";
      for (const auto earlier : node.waits_for) file << "  n" << earlier << " -> n" << i << ";\n";
      last[node.lane] = static_cast<std::int64_t>(i);
    }
    file << "}\n";
    file.close();
    return file ? cudaSuccess : fail(cudaErrorOperatingSystem, std::string("cannot write ") + path);
  });
}

}  // extern "C"
