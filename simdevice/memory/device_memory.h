// SPDX-License-Identifier: Apache-2.0
// Device memory that the host cannot touch.
//
// Two ranges of addresses of the same size are reserved. A device address lies in the first, whose pages are never
// accessible: a host access ends in a fault, as it would with a card. The byte behind it lies at the same distance
// from the start of the second range, the host view, which only kernels and copies use. Pages that back the host view
// come from one anonymous file, so that physical memory can be allocated, mapped and freed on its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <shared_mutex>

#include "simdevice/engine/failure.h"
#include "simdevice/memory/extents.h"

namespace simdevice {

class DeviceMemory {
 public:
  // capacity_nbytes: what may be allocated at a time. Throws std::system_error if the system refuses the addresses.
  explicit DeviceMemory(std::size_t capacity_nbytes);
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  // All functions below are thread-safe; those that return a FailurePtr have changed nothing when it is set.

  FailurePtr allocate(std::size_t nbytes, void** device);
  FailurePtr free(void* device);

  // Addresses without memory, and memory without addresses (expandable segments).
  FailurePtr reserve(std::size_t nbytes, std::size_t alignment, void** device);
  FailurePtr release(void* device);
  FailurePtr create_physical(std::size_t nbytes, std::uint64_t* physical);
  FailurePtr destroy_physical(std::uint64_t physical);
  FailurePtr map(void* device, std::size_t nbytes, std::size_t offset, std::uint64_t physical);
  FailurePtr unmap(void* device);

  // True for any address in the device's range, mapped or not.
  bool contains(const void* device) const noexcept;
  // Null if it is not a device address. Does not look at what is mapped: kernels call it often.
  void* host_view(const void* device) const noexcept;
  // Fails unless all of [device, device + nbytes) is mapped.
  FailurePtr check_range(const void* device, std::size_t nbytes) const;

  std::size_t capacity_nbytes() const noexcept { return capacity_nbytes_; }
  std::size_t free_nbytes() const;

 private:
  struct Mapping {
    std::size_t nbytes;       // as asked for
    std::size_t page_nbytes;  // rounded up to whole pages
    std::uint64_t physical;
  };
  struct Physical {
    std::size_t file_offset;
    std::size_t page_nbytes;
    bool destroyed = false;  // destroyed by its owner, still mapped
    int mapped = 0;
  };

  std::size_t offset_of(const void* device) const noexcept;
  FailurePtr create_physical_locked(std::size_t nbytes, std::uint64_t* physical);
  void drop_if_unused(std::uint64_t physical);
  void map_pages(std::size_t offset, std::size_t page_nbytes, std::size_t file_offset);
  void unmap_pages(std::size_t offset, std::size_t page_nbytes);

  const std::size_t capacity_nbytes_;
  std::size_t window_nbytes_ = 0;
  char* device_base_ = nullptr;
  char* host_base_ = nullptr;
  int file_ = -1;

  mutable std::shared_mutex mutex_;
  Extents addresses_{0};
  Extents pages_;
  std::size_t used_nbytes_ = 0;
  std::uint64_t next_physical_ = 1;
  std::map<std::size_t, Mapping> mappings_;                       // by offset; also those of `allocate`
  std::map<std::size_t, std::size_t> reservations_;               // offset -> nbytes, those of `reserve`
  std::map<std::size_t, std::size_t> allocations_;                // offset -> nbytes of addresses, those of `allocate`
  std::map<std::uint64_t, Physical> physicals_;
};

}  // namespace simdevice
