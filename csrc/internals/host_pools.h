// Pinned host memory that belongs to a pool of a device's allocator. All of these are false where there is none.
#pragma once

#include <c10/core/DeviceType.h>

#include <cstdint>
#include <utility>

namespace airgraph {

using PoolId = std::pair<uint64_t, uint64_t>;

// Take a use of it: the allocator lets no graph into a pool that nobody uses any more.
bool hold_host_pool(c10::DeviceType device, PoolId pool);
bool release_host_pool(c10::DeviceType device, PoolId pool);

// Take back what a failed capture has left: the routing of pinned allocations to the pool, and the use that it took.
bool stop_host_routing(c10::DeviceType device, PoolId pool);

}  // namespace airgraph
