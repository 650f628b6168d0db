// SPDX-License-Identifier: Apache-2.0
// Devices: how many, which, and what they say of themselves.
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstring>

#include "runtime.h"
#include "status.h"

using namespace simcuda;

namespace {

constexpr int runtime_version = 13000;
constexpr int warp_size = 32;
constexpr int processor_count = 132;
constexpr int threads_per_block = 1024;
constexpr int threads_per_processor = 2048;
constexpr int shared_nbytes_per_block = 48 << 10;
constexpr int shared_nbytes_opt_in = 227 << 10;
constexpr int registers = 65536;

cudaError_t check_number(int device) {
  if (device >= 0 && device < Runtime::get().device_count()) return cudaSuccess;
  return fail(cudaErrorInvalidDevice, "there is no device " + std::to_string(device));
}

}  // namespace

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  *count = settings().device_count;
  if (settings().problem.empty()) return cudaSuccess;
  *count = 0;
  return fail(cudaErrorInvalidValue, settings().problem);
}

cudaError_t cudaGetDevice(int* device) {
  *device = Runtime::get().current_number();
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  return Runtime::get().choose(device) ? cudaSuccess : check_number(device);
}

cudaError_t cudaDeviceSynchronize() {
  if (const auto failed = entered(__func__)) return failed;
  if (in_forked_child()) return fail(used_after_fork());
  auto& runtime = Runtime::get();
  if (auto failure = runtime.check_device_wait(__func__)) return fail(failure);
  FailurePtr first;
  for (const auto& stream : runtime.current().streams()) {
    stream->synchronize(std::nullopt);
    if (auto failure = stream->failure(); failure && !first) first = failure;
  }
  return fail(first);
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (const auto failed = check_number(device)) return failed;
  *properties = {};
  std::snprintf(properties->name, sizeof(properties->name), "Simulated CUDA device");
  std::memset(properties->uuid.bytes, device + 1, sizeof(properties->uuid.bytes));
  properties->totalGlobalMem = Runtime::get().device(device).memory.capacity_nbytes();
  properties->major = settings().capability_major;
  properties->minor = settings().capability_minor;
  properties->multiProcessorCount = processor_count;
  properties->warpSize = warp_size;
  properties->maxThreadsPerBlock = threads_per_block;
  properties->maxThreadsPerMultiProcessor = threads_per_processor;
  properties->maxThreadsDim[0] = threads_per_block;
  properties->maxThreadsDim[1] = threads_per_block;
  properties->maxThreadsDim[2] = 64;
  properties->maxGridSize[0] = 0x7fffffff;
  properties->maxGridSize[1] = 0xffff;
  properties->maxGridSize[2] = 0xffff;
  properties->sharedMemPerBlock = shared_nbytes_per_block;
  properties->sharedMemPerBlockOptin = shared_nbytes_opt_in;
  properties->sharedMemPerMultiprocessor = shared_nbytes_opt_in + 1024;
  properties->regsPerBlock = registers;
  properties->regsPerMultiprocessor = registers;
  properties->l2CacheSize = 50 << 20;
  properties->textureAlignment = 512;
  properties->unifiedAddressing = 1;
  properties->concurrentKernels = 1;
  properties->pciBusID = device;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  if (const auto failed = check_number(device)) return failed;
  switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor:
      *value = settings().capability_major;
      break;
    case cudaDevAttrComputeCapabilityMinor:
      *value = settings().capability_minor;
      break;
    case cudaDevAttrMultiProcessorCount:
      *value = processor_count;
      break;
    case cudaDevAttrMaxThreadsPerBlock:
      *value = threads_per_block;
      break;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      *value = threads_per_processor;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      *value = shared_nbytes_per_block;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = shared_nbytes_opt_in;
      break;
    case cudaDevAttrWarpSize:
      *value = warp_size;
      break;
    case cudaDevAttrUnifiedAddressing:
      *value = 1;
      break;
    default:
      *value = 0;
  }
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int device) {
  if (const auto failed = check_number(device)) return failed;
  std::snprintf(text, static_cast<size_t>(length), "0000:%02x:00.0", device);
  return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  *can = device != peer;
  return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned int) { return check_number(peer); }

cudaError_t cudaDriverGetVersion(int* version) {
  *version = runtime_version;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = runtime_version;
  return cudaSuccess;
}

cudaError_t cudaProfilerStart() { return cudaSuccess; }
cudaError_t cudaProfilerStop() { return cudaSuccess; }

}  // extern "C"
