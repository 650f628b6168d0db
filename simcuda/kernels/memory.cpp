// SPDX-License-Identifier: Apache-2.0
// What torch's allocator takes back is overwritten, in the order of the stream that the memory belongs to: whoever still
// reads it, without being ordered before, reads not-a-numbers.
#include "memory.h"

#include <c10/core/DeviceGuard.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <cuda_runtime_api.h>

#include <cstring>

#include "device.h"

namespace simcuda {
namespace {

constexpr int poison_byte = 0xff;

bool is_captured(cudaStream_t stream) {
  auto status = cudaStreamCaptureStatusNone;
  cudaStreamIsCapturing(stream, &status);
  return status != cudaStreamCaptureStatusNone;
}

void poison(const c10::CachingDeviceAllocator::TraceEntry& entry) {
  if (entry.action_ != c10::CachingDeviceAllocator::TraceEntry::FREE_COMPLETED) return;
  // The default stream is named by no handle: it is that of the current device.
  const c10::DeviceGuard guard(c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(entry.device_)));
  const auto stream = static_cast<cudaStream_t>(entry.stream_);
  // Within a capture a graph's own memory, which then is overwritten in each replay; memory from before it may be
  // somebody else's by then. Outside of captures, what a pool holds may go on being written by its graphs.
  const bool of_a_pool = entry.mempool_.first != 0 || entry.mempool_.second != 0;
  if (is_captured(stream) != of_a_pool) return;
  auto* data = reinterpret_cast<void*>(entry.addr_);
  launch(stream, "freed", [data, nbytes = entry.size_] {
    if (is_allocated(data, nbytes)) std::memset(host_view(data), poison_byte, nbytes);
  });
}

}  // namespace

void poison_what_is_freed() {
  namespace allocator = c10::cuda::CUDACachingAllocator;
  // The others, as cudaMallocAsync's, tell nobody what they take back.
  if (kernels_enabled() && allocator::name() == "native") allocator::attachAllocatorTraceTracker(poison);
}

}  // namespace simcuda
