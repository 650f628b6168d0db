// SPDX-License-Identifier: Apache-2.0
// Allocation, mapping and copies.
#include <acl/acl.h>

#include "memory/copy.h"
#include "runtime.h"
#include "settings.h"
#include "status.h"
#include "simdevice/trace.h"

using namespace simcann;

namespace {

DeviceMemory& memory() { return Runtime::get().memory; }

constexpr std::uint32_t page_nbytes = 4096;
constexpr std::size_t granularity_nbytes = std::size_t{2} << 20;

}  // namespace

extern "C" {

aclError aclrtMalloc(void** devPtr, size_t size, aclrtMemMallocPolicy policy) {
  if (const auto failed = entered(__func__, size, policy)) return failed;
  return fail(memory().allocate(size, devPtr));
}

aclError aclrtMallocAlign32(void** devPtr, size_t size, aclrtMemMallocPolicy policy) {
  return aclrtMalloc(devPtr, size, policy);
}

aclError aclrtMallocCached(void** devPtr, size_t size, aclrtMemMallocPolicy policy) {
  return aclrtMalloc(devPtr, size, policy);
}

aclError aclrtMallocWithCfg(void** devPtr, size_t size, aclrtMemMallocPolicy policy, aclrtMallocConfig*) {
  return aclrtMalloc(devPtr, size, policy);
}

aclError aclrtFree(void* devPtr) {
  trace(__func__, devPtr);
  return fail(memory().free(devPtr));
}

aclError aclrtMallocHost(void** hostPtr, size_t size) {
  if (const auto failed = entered(__func__, size)) return failed;
  return fail(Runtime::get().host_memory.allocate(size, hostPtr));
}

aclError aclrtMallocHostWithCfg(void** ptr, uint64_t size, aclrtMallocConfig*) { return aclrtMallocHost(ptr, size); }

aclError aclrtFreeHost(void* hostPtr) {
  trace(__func__, hostPtr);
  return fail(Runtime::get().host_memory.free(hostPtr));
}

aclError aclrtHostRegister(void* ptr, uint64_t size, aclrtHostRegisterType type, void** devPtr) {
  trace(__func__, ptr, size, type);
  if (auto failure = Runtime::get().host_memory.add(ptr, size)) return fail(failure);
  if (devPtr != nullptr) *devPtr = ptr;
  return ACL_SUCCESS;
}

aclError aclrtHostRegisterV2(void* ptr, uint64_t size, uint32_t flag) {
  trace(__func__, ptr, size, flag);
  return fail(Runtime::get().host_memory.add(ptr, size));
}

aclError aclrtHostUnregister(void* ptr) {
  trace(__func__, ptr);
  return fail(Runtime::get().host_memory.remove(ptr));
}

aclError aclrtPointerGetAttributes(const void* ptr, aclrtPtrAttributes* attributes) {
  *attributes = {};
  attributes->pageSize = page_nbytes;
  attributes->location.type = memory().contains(ptr)                      ? ACL_MEM_LOCATION_TYPE_DEVICE
                              : Runtime::get().host_memory.contains(ptr) ? ACL_MEM_LOCATION_TYPE_HOST
                                                                          : ACL_MEM_LOCATION_TYPE_UNREGISTERED;
  return ACL_SUCCESS;
}

aclError aclrtGetMemInfo(aclrtMemAttr attr, size_t* free, size_t* total) {
  trace(__func__, attr);
  *free = memory().free_nbytes();
  *total = memory().capacity_nbytes();
  return ACL_SUCCESS;
}

aclError aclrtReserveMemAddress(void** virPtr, size_t size, size_t alignment, void* expectPtr, uint64_t flags) {
  trace(__func__, size, alignment, expectPtr, flags);
  return fail(memory().reserve(size, alignment, virPtr));
}

aclError aclrtReleaseMemAddress(void* virPtr) {
  trace(__func__, virPtr);
  return fail(memory().release(virPtr));
}

aclError aclrtMallocPhysical(aclrtDrvMemHandle* handle, size_t size, const aclrtPhysicalMemProp*, uint64_t flags) {
  trace(__func__, size, flags);
  std::uint64_t physical = 0;
  if (auto failure = memory().create_physical(size, &physical)) return fail(failure);
  *handle = reinterpret_cast<aclrtDrvMemHandle>(physical);
  return ACL_SUCCESS;
}

aclError aclrtFreePhysical(aclrtDrvMemHandle handle) {
  trace(__func__, handle);
  return fail(memory().destroy_physical(reinterpret_cast<std::uint64_t>(handle)));
}

aclError aclrtMapMem(void* virPtr, size_t size, size_t offset, aclrtDrvMemHandle handle, uint64_t flags) {
  trace(__func__, virPtr, size, offset, handle, flags);
  return fail(memory().map(virPtr, size, offset, reinterpret_cast<std::uint64_t>(handle)));
}

aclError aclrtUnmapMem(void* virPtr) {
  trace(__func__, virPtr);
  return fail(memory().unmap(virPtr));
}

aclError aclrtMemGetAllocationGranularity(aclrtPhysicalMemProp*, aclrtMemGranularityOptions, size_t* granularity) {
  *granularity = granularity_nbytes;
  return ACL_SUCCESS;
}

aclError aclrtMemcpy(void* dst, size_t destMax, const void* src, size_t count, aclrtMemcpyKind kind) {
  trace(__func__, dst, destMax, src, count, kind);
  if (auto failure = Runtime::get().captures.check_host_call(__func__)) return fail(failure);
  Copy copy;
  if (auto failure = plan_copy(dst, destMax, src, count, kind, &copy)) return fail(failure);
  if (!settings().kernels_enabled) return ACL_SUCCESS;
  try {
    run_copy(copy);
  } catch (const DeviceFault& fault) {
    return fail(fault.failure());
  }
  return ACL_SUCCESS;
}

aclError aclrtMemcpyAsync(void* dst, size_t destMax, const void* src, size_t count, aclrtMemcpyKind kind,
                          aclrtStream stream) {
  trace(__func__, dst, destMax, src, count, kind, stream);
  Copy copy;
  if (auto failure = plan_copy(dst, destMax, src, count, kind, &copy)) return fail(failure);
  const auto target = Runtime::get().stream(stream);
  if (!target) return fail(no_such_stream(stream));
  if (copy.blocks_host) {
    if (auto failure = Runtime::get().captures.refuse_blocking_copy(target)) return fail(failure);
  }
  const auto work = [copy] { run_copy(copy); };
  if (auto failure = Runtime::get().enqueue(target, NodeKind::memory_copy, "memcpy", work)) return fail(failure);
  return copy.blocks_host ? aclrtSynchronizeStream(stream) : ACL_SUCCESS;
}

aclError aclrtMemcpyAsyncWithCondition(void* dst, size_t destMax, const void* src, size_t count, aclrtMemcpyKind kind,
                                       aclrtStream stream) {
  return aclrtMemcpyAsync(dst, destMax, src, count, kind, stream);
}

aclError aclrtMemset(void* devPtr, size_t maxCount, int32_t value, size_t count) {
  trace(__func__, devPtr, maxCount, value, count);
  if (auto failure = Runtime::get().captures.check_host_call(__func__)) return fail(failure);
  if (auto failure = check_fill(devPtr, maxCount, count)) return fail(failure);
  if (settings().kernels_enabled) run_fill(devPtr, value, count);
  return ACL_SUCCESS;
}

aclError aclrtMemsetAsync(void* devPtr, size_t maxCount, int32_t value, size_t count, aclrtStream stream) {
  trace(__func__, devPtr, maxCount, value, count, stream);
  if (auto failure = check_fill(devPtr, maxCount, count)) return fail(failure);
  return launch(stream, "memset", [=] { run_fill(devPtr, value, count); });
}

}  // extern "C"
