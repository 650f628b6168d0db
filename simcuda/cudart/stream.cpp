// SPDX-License-Identifier: Apache-2.0
// Streams, and host functions on them.
#include <cuda_runtime_api.h>

#include "runtime.h"
#include "status.h"
#include "with_stream.h"

using namespace simcuda;

namespace {

constexpr int least_priority = 0;
constexpr int greatest_priority = -5;

}  // namespace

extern "C" {

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned int flags, int priority) {
  if (const auto failed = entered(__func__, flags, priority)) return failed;
  void* handle = nullptr;
  const auto failure =
      Runtime::get().current().create_stream(static_cast<std::uint32_t>(priority), flags, &handle);
  *stream = static_cast<cudaStream_t>(handle);
  return fail(failure);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int flags) {
  return cudaStreamCreateWithPriority(stream, flags, least_priority);
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return cudaStreamCreateWithPriority(stream, cudaStreamDefault, least_priority);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  if (const auto failed = entered(__func__, stream)) return failed;
  return with_stream(stream, [&](const auto& found) { return found.device->destroy_stream(stream, false); });
}

cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  return with_stream(stream, [&](const auto& found) {
    *priority = static_cast<int>(found.stream->priority());
    return FailurePtr{};
  });
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = least_priority;
  *greatest = greatest_priority;
  return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  if (const auto failed = entered(__func__, stream)) return failed;
  const auto found = Runtime::get().stream(stream);
  if (!found.stream) return fail(no_such_stream(stream));
  if (auto failure = found.device->captures.refuse_if_captured(found.stream, __func__)) return fail(failure);
  if (!found.stream->idle()) return fail(cudaErrorNotReady, "the stream is not idle");
  return fail(found.stream->failure());
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (const auto failed = entered(__func__, stream)) return failed;
  if (in_forked_child()) return fail(used_after_fork());
  return with_stream(stream, [](const auto& found) {
    if (auto failure = found.device->captures.refuse_if_captured(found.stream, "cudaStreamSynchronize")) return failure;
    found.stream->synchronize(std::nullopt);
    return found.stream->failure();
  });
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  if (const auto failed = entered(__func__, stream, reinterpret_cast<void*>(function), data)) return failed;
  return with_stream(stream, [&](const auto& found) {
    return found.device->enqueue(found.stream, NodeKind::host_function, "host function", [=] { function(data); });
  });
}

cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t callback, void* data, unsigned int flags) {
  if (const auto failed = entered(__func__, stream, reinterpret_cast<void*>(callback), data, flags)) return failed;
  return with_stream(stream, [&](const auto& found) {
    if (auto failure = found.device->captures.refuse_if_captured(found.stream, "cudaStreamAddCallback")) return failure;
    return found.device->enqueue(found.stream, NodeKind::host_function, "callback",
                                 [=] { callback(stream, cudaSuccess, data); });
  });
}

}  // extern "C"
