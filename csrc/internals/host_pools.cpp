#include "host_pools.h"

#include <ATen/core/CachingHostAllocator.h>
#include <torch/version.h>

namespace airgraph {
namespace {

template <class Action>
bool with_allocator(c10::DeviceType device, const Action& action) {
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 13
  try {
    auto* allocator = at::getHostAllocator(device);
    if (allocator == nullptr) {
      return false;
    }
    action(*allocator);
    return true;
  } catch (const std::exception&) {
    // Not implemented, or nothing of this pool is there.
    return false;
  }
#else
  return false;
#endif
}

}  // namespace

bool hold_host_pool(c10::DeviceType device, PoolId pool) {
  return with_allocator(device, [&](auto& allocator) {
    allocator.begin_allocate_to_pool(pool, [](c10::Stream) { return false; });
    allocator.end_allocate_to_pool(pool);
  });
}

bool release_host_pool(c10::DeviceType device, PoolId pool) {
  return with_allocator(device, [&](auto& allocator) { allocator.release_pool(pool); });
}

bool stop_host_routing(c10::DeviceType device, PoolId pool) {
  return with_allocator(device, [&](auto& allocator) {
    allocator.end_allocate_to_pool(pool);
    allocator.release_pool(pool);
  });
}

}  // namespace airgraph
