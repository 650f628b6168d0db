// SPDX-License-Identifier: Apache-2.0
// Compiled kernels: known by name, never run. What ATen's operators compute is served above this interface.
#include <cuda_runtime_api.h>

#include <cxxabi.h>

#include <cstdlib>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "export.h"
#include "status.h"

using namespace simcuda;

namespace {

std::mutex mutex;

std::unordered_map<const void*, const char*>& names() {
  static auto& all = *new std::unordered_map<const void*, const char*>;
  return all;
}

std::string name_of_kernel(const void* function) {
  std::lock_guard lock(mutex);
  const auto it = names().find(function);
  if (it == names().end()) return "an unknown kernel";
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> readable(
      abi::__cxa_demangle(it->second, nullptr, nullptr, &status), std::free);
  return status == 0 ? readable.get() : it->second;
}

cudaError_t refuse(const void* function) {
  return fail(cudaErrorInvalidDeviceFunction,
              "there is no simulated form of the kernel " + name_of_kernel(function));
}

}  // namespace

extern "C" {

SIMCUDA_EXPORT void** __cudaRegisterFatBinary(void*) {
  static void* handle = nullptr;
  return &handle;
}
SIMCUDA_EXPORT void __cudaRegisterFatBinaryEnd(void**) {}
SIMCUDA_EXPORT void __cudaUnregisterFatBinary(void**) {}
SIMCUDA_EXPORT char __cudaInitModule(void**) { return 1; }
SIMCUDA_EXPORT void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}

SIMCUDA_EXPORT void __cudaRegisterFunction(void**, const char* function, char*, const char* name, int, uint3*, uint3*,
                                           dim3*, dim3*, int*) {
  std::lock_guard lock(mutex);
  names().emplace(function, name);
}

SIMCUDA_EXPORT unsigned __cudaPushCallConfiguration(dim3, dim3, size_t, void*) { return 0; }

SIMCUDA_EXPORT cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
  *grid = *block = dim3(1, 1, 1);
  *shared = 0;
  *static_cast<void**>(stream) = nullptr;
  return cudaSuccess;
}

SIMCUDA_EXPORT cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  *kernel = static_cast<cudaKernel_t>(const_cast<void*>(function));
  return cudaSuccess;
}

SIMCUDA_EXPORT cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3, dim3, void**, size_t, cudaStream_t) {
  return refuse(kernel);
}

cudaError_t cudaLaunchKernel(const void* function, dim3, dim3, void**, size_t, cudaStream_t) {
  return refuse(function);
}

cudaError_t cudaLaunchCooperativeKernel(const void* function, dim3, dim3, void**, size_t, cudaStream_t) {
  return refuse(function);
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t*, const void* function, void**) { return refuse(function); }

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  constexpr int usual_threads = 1024;
  *attributes = {};
  attributes->maxThreadsPerBlock = usual_threads;
  attributes->binaryVersion = 90;
  attributes->ptxVersion = 90;
  return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) { return cudaSuccess; }

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*, int, size_t) {
  *blocks = 1;
  return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void*, int, size_t, unsigned) {
  *blocks = 1;
  return cudaSuccess;
}

}  // extern "C"
