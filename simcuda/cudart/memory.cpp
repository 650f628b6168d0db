// SPDX-License-Identifier: Apache-2.0
// Memory and copies.
#include <cuda_runtime_api.h>

#include <cstring>
#include <memory>
#include <sstream>
#include <vector>

#include "device.h"
#include "runtime.h"
#include "status.h"

using namespace simcuda;

namespace {

// Rows of bytes; one row for a plain copy.
struct Copy {
  char* target;
  const char* source;
  std::size_t nbytes;  // of a row
  std::size_t rows = 1;
  std::size_t target_pitch = 0;
  std::size_t source_pitch = 0;
};

FailurePtr no_memory_at(const void* address, std::size_t nbytes) {
  std::ostringstream text;
  text << nbytes << " bytes at " << address << " are not allocated on a device";
  return make_failure(static_cast<Status>(cudaErrorIllegalAddress), text.str());
}

// The bytes that a copy reads or writes, wherever they are.
char* bytes_at(const void* address, std::size_t nbytes) {
  auto* device = Runtime::get().device_of(address);
  if (device == nullptr) return static_cast<char*>(const_cast<void*>(address));
  if (device->memory.check_range(address, nbytes)) throw DeviceFault(no_memory_at(address, nbytes));
  return static_cast<char*>(device->memory.host_view(address));
}

void run(const Copy& copy) {
  for (std::size_t row = 0; row < copy.rows; ++row) {
    std::memmove(bytes_at(copy.target + row * copy.target_pitch, copy.nbytes),
                 bytes_at(copy.source + row * copy.source_pitch, copy.nbytes), copy.nbytes);
  }
}

bool is_pageable(const void* address) {
  auto& runtime = Runtime::get();
  return runtime.device_of(address) == nullptr && !runtime.host_memory.contains(address);
}

FailurePtr check_kind(const Copy& copy, cudaMemcpyKind kind) {
  auto& runtime = Runtime::get();
  const bool target_on_device = runtime.device_of(copy.target) != nullptr;
  const bool source_on_device = runtime.device_of(copy.source) != nullptr;
  const bool fits = kind == cudaMemcpyDefault || (kind == cudaMemcpyHostToHost && !target_on_device && !source_on_device) ||
                    (kind == cudaMemcpyHostToDevice && target_on_device && !source_on_device) ||
                    (kind == cudaMemcpyDeviceToHost && !target_on_device && source_on_device) ||
                    (kind == cudaMemcpyDeviceToDevice && target_on_device && source_on_device);
  if (fits) return nullptr;
  return make_failure(static_cast<Status>(cudaErrorInvalidMemcpyDirection),
                      "the addresses are not what the kind of the copy says");
}

cudaError_t submit(const Copy& copy, cudaMemcpyKind kind, cudaStream_t handle) {
  if (copy.nbytes == 0 || copy.rows == 0) return cudaSuccess;
  if (in_forked_child()) return fail(used_after_fork());
  auto& runtime = Runtime::get();
  const auto [device, stream] = runtime.stream(handle);
  if (!stream) return fail(no_such_stream(handle));
  if (auto failure = check_kind(copy, kind)) return fail(failure);
  const bool from_pageable = is_pageable(copy.source);
  const bool to_pageable = is_pageable(copy.target);
  if (from_pageable || to_pageable) {
    if (auto failure = device->captures.refuse_blocking_copy(stream)) return fail(failure);
  }
  if (!kernels_enabled()) return cudaSuccess;
  if (from_pageable && copy.rows == 1) {
    // The driver has read pageable memory when the call returns.
    const auto staged = std::make_shared<std::vector<char>>(copy.source, copy.source + copy.nbytes);
    return fail(device->enqueue(stream, NodeKind::memory_copy, "copy from the host",
                                [=] { run({copy.target, staged->data(), copy.nbytes}); }));
  }
  if (auto failure = device->enqueue(stream, NodeKind::memory_copy, "copy", [=] { run(copy); })) return fail(failure);
  if (!from_pageable && !to_pageable) return cudaSuccess;
  stream->synchronize(std::nullopt);
  return fail(stream->failure());
}

cudaError_t submit_fill(void* target, int value, std::size_t nbytes, cudaStream_t handle) {
  if (nbytes == 0) return cudaSuccess;
  const auto [device, stream] = Runtime::get().stream(handle);
  if (!stream) return fail(no_such_stream(handle));
  if (Runtime::get().device_of(target) == nullptr) return fail(cudaErrorInvalidValue, "not device memory");
  if (!kernels_enabled() && stream->recording() == Stream::Recording::none) return cudaSuccess;
  return fail(device->enqueue(stream, NodeKind::kernel, "memset",
                              [=] { std::memset(bytes_at(target, nbytes), value, nbytes); }));
}

cudaError_t wait_for(cudaStream_t handle) {
  const auto [device, stream] = Runtime::get().stream(handle);
  if (!kernels_enabled()) return cudaSuccess;
  stream->synchronize(std::nullopt);
  return fail(stream->failure());
}

}  // namespace

extern "C" {

cudaError_t cudaMalloc(void** pointer, size_t nbytes) {
  if (const auto failed = entered(__func__, nbytes)) return failed;
  if (in_forked_child()) return fail(used_after_fork());
  auto& runtime = Runtime::get();
  if (auto failure = runtime.check_host_call(__func__)) return fail(failure);
  return fail(runtime.current().memory.allocate(nbytes, pointer));
}

cudaError_t cudaFree(void* pointer) {
  if (const auto failed = entered(__func__, pointer)) return failed;
  if (pointer == nullptr) return cudaSuccess;
  auto& runtime = Runtime::get();
  if (auto failure = runtime.check_host_call(__func__)) return fail(failure);
  auto* device = runtime.device_of(pointer);
  if (device == nullptr) return fail(cudaErrorInvalidValue, "this is not device memory");
  // It waits for all that the device has to do.
  for (const auto& stream : device->streams()) {
    if (stream->recording() == Stream::Recording::none) stream->synchronize(std::nullopt);
  }
  return fail(device->memory.free(pointer));
}

cudaError_t cudaMallocAsync(void** pointer, size_t nbytes, cudaStream_t stream) {
  if (const auto failed = entered(__func__, nbytes, stream)) return failed;
  const auto [device, found] = Runtime::get().stream(stream);
  if (!found) return fail(no_such_stream(stream));
  if (auto failure = device->captures.refuse_if_captured(found, __func__)) return fail(failure);
  return fail(device->memory.allocate(nbytes, pointer));
}

cudaError_t cudaFreeAsync(void* pointer, cudaStream_t stream) {
  if (const auto failed = entered(__func__, pointer, stream)) return failed;
  const auto [device, found] = Runtime::get().stream(stream);
  if (!found) return fail(no_such_stream(stream));
  if (auto failure = device->captures.refuse_if_captured(found, __func__)) return fail(failure);
  return fail(device->enqueue(found, NodeKind::kernel, "free", [device = device, pointer] {
    if (auto failure = device->memory.free(pointer)) throw DeviceFault(failure);
  }));
}

// A device has one memory pool, which is its memory: nothing is kept back, and settings change nothing.
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
  if (const auto failed = entered(__func__, device)) return failed;
  auto& runtime = Runtime::get();
  if (device < 0 || device >= runtime.device_count()) return fail(cudaErrorInvalidDevice, "there is no such device");
  *pool = reinterpret_cast<cudaMemPool_t>(&runtime.device(device));
  return cudaSuccess;
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) { return cudaSuccess; }

cudaError_t cudaMemPoolSetAccess(cudaMemPool_t, const cudaMemAccessDesc*, size_t) { return cudaSuccess; }

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, size_t) { return cudaSuccess; }

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  const auto& memory = Runtime::get().current().memory;
  *free = memory.free_nbytes();
  *total = memory.capacity_nbytes();
  return cudaSuccess;
}

cudaError_t cudaHostAlloc(void** pointer, size_t nbytes, unsigned int flags) {
  if (const auto failed = entered(__func__, nbytes, flags)) return failed;
  auto& runtime = Runtime::get();
  if (auto failure = runtime.check_host_call(__func__)) return fail(failure);
  return fail(runtime.host_memory.allocate(nbytes, pointer));
}

cudaError_t cudaFreeHost(void* pointer) {
  if (const auto failed = entered(__func__, pointer)) return failed;
  auto& runtime = Runtime::get();
  if (auto failure = runtime.check_host_call(__func__)) return fail(failure);
  return fail(runtime.host_memory.free(pointer));
}

cudaError_t cudaHostRegister(void* pointer, size_t nbytes, unsigned int flags) {
  if (const auto failed = entered(__func__, pointer, nbytes, flags)) return failed;
  return fail(Runtime::get().host_memory.add(pointer, nbytes));
}

cudaError_t cudaHostUnregister(void* pointer) {
  if (const auto failed = entered(__func__, pointer)) return failed;
  return fail(Runtime::get().host_memory.remove(pointer));
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  auto& runtime = Runtime::get();
  *attributes = {};
  attributes->device = runtime.current_number();
  if (auto* device = runtime.device_of(pointer)) {
    attributes->type = cudaMemoryTypeDevice;
    attributes->device = runtime.number_of(*device);
    attributes->devicePointer = const_cast<void*>(pointer);
  } else if (runtime.host_memory.contains(pointer)) {
    attributes->type = cudaMemoryTypeHost;
    attributes->hostPointer = const_cast<void*>(pointer);
    attributes->devicePointer = const_cast<void*>(pointer);
  }
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* target, const void* source, size_t nbytes, cudaMemcpyKind kind, cudaStream_t stream) {
  if (const auto failed = entered(__func__, target, source, nbytes, static_cast<int>(kind), stream)) return failed;
  return submit({static_cast<char*>(target), static_cast<const char*>(source), nbytes}, kind, stream);
}

cudaError_t cudaMemcpy(void* target, const void* source, size_t nbytes, cudaMemcpyKind kind) {
  if (const auto failed = entered(__func__, target, source, nbytes, static_cast<int>(kind))) return failed;
  if (auto failure = Runtime::get().check_host_call(__func__)) return fail(failure);
  const auto status =
      submit({static_cast<char*>(target), static_cast<const char*>(source), nbytes}, kind, nullptr);
  return status == cudaSuccess ? wait_for(nullptr) : status;
}

cudaError_t cudaMemcpyPeerAsync(void* target, int target_device, const void* source, int source_device, size_t nbytes,
                                cudaStream_t stream) {
  if (const auto failed = entered(__func__, target, target_device, source, source_device, nbytes, stream)) return failed;
  return submit({static_cast<char*>(target), static_cast<const char*>(source), nbytes}, cudaMemcpyDeviceToDevice,
                stream);
}

cudaError_t cudaMemcpy2DAsync(void* target, size_t target_pitch, const void* source, size_t source_pitch, size_t width,
                              size_t height, cudaMemcpyKind kind, cudaStream_t stream) {
  if (const auto failed = entered(__func__, target, source, width, height, static_cast<int>(kind), stream)) {
    return failed;
  }
  return submit({static_cast<char*>(target), static_cast<const char*>(source), width, height, target_pitch, source_pitch},
                kind, stream);
}

cudaError_t cudaMemsetAsync(void* target, int value, size_t nbytes, cudaStream_t stream) {
  if (const auto failed = entered(__func__, target, value, nbytes, stream)) return failed;
  return submit_fill(target, value, nbytes, stream);
}

cudaError_t cudaMemset(void* target, int value, size_t nbytes) {
  if (const auto failed = entered(__func__, target, value, nbytes)) return failed;
  if (auto failure = Runtime::get().check_host_call(__func__)) return fail(failure);
  return submit_fill(target, value, nbytes, nullptr);
}

}  // extern "C"
