// SPDX-License-Identifier: Apache-2.0
#include "simdevice/memory/device_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <mutex>
#include <sstream>
#include <system_error>

#include "simdevice/fork.h"
#include "simdevice/memory/page.h"
#include "simdevice/settings.h"

namespace simdevice {
namespace {

// Addresses are plentiful: room for the reservations of many expandable segments. Less will do where a limit
// (ulimit -v, or a sanitizer) forbids that much.
constexpr std::size_t largest_window = std::size_t{4} << 40;

std::size_t whole_pages(std::size_t nbytes) { return (nbytes + page - 1) & ~(page - 1); }

std::string named(const void* device) {
  std::ostringstream text;
  text << device;
  return text.str();
}

FailurePtr invalid(std::string message) { return make_failure(Fault::invalid_argument, std::move(message)); }

[[noreturn]] void refuse(const char* what) { throw std::system_error(errno, std::generic_category(), what); }

// Null if the system has no such range left.
char* reserve_addresses(std::size_t nbytes) {
  void* base = ::mmap(nullptr, nbytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return base == MAP_FAILED ? nullptr : static_cast<char*>(base);
}

}  // namespace

DeviceMemory::DeviceMemory(std::size_t capacity_nbytes)
    : capacity_nbytes_(whole_pages(capacity_nbytes)), pages_(capacity_nbytes_) {
  file_ = ::memfd_create("simulated device memory", MFD_CLOEXEC);
  if (file_ < 0 || ::ftruncate(file_, static_cast<off_t>(capacity_nbytes_)) != 0) {
    refuse("simulated device: cannot create the file behind device memory");
  }
  for (window_nbytes_ = largest_window; window_nbytes_ >= 2 * capacity_nbytes_; window_nbytes_ /= 2) {
    device_base_ = reserve_addresses(window_nbytes_);
    host_base_ = device_base_ == nullptr ? nullptr : reserve_addresses(window_nbytes_);
    if (host_base_ != nullptr) break;
    if (device_base_ != nullptr) ::munmap(device_base_, window_nbytes_);
  }
  if (host_base_ == nullptr) refuse("simulated device: cannot reserve addresses for device memory");
  addresses_ = Extents(window_nbytes_);
}

DeviceMemory::~DeviceMemory() {
  ::munmap(device_base_, window_nbytes_);
  ::munmap(host_base_, window_nbytes_);
  ::close(file_);
}

std::size_t DeviceMemory::offset_of(const void* device) const noexcept {
  return static_cast<std::size_t>(static_cast<const char*>(device) - device_base_);
}

bool DeviceMemory::contains(const void* device) const noexcept {
  return reinterpret_cast<std::uintptr_t>(device) - reinterpret_cast<std::uintptr_t>(device_base_) < window_nbytes_;
}

void* DeviceMemory::host_view(const void* device) const noexcept {
  return contains(device) ? host_base_ + offset_of(device) : nullptr;
}

void DeviceMemory::map_pages(std::size_t offset, std::size_t page_nbytes, std::size_t file_offset) {
  void* mapped = ::mmap(host_base_ + offset, page_nbytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file_,
                        static_cast<off_t>(file_offset));
  if (mapped == MAP_FAILED) refuse("simulated device: cannot map device memory");
}

void DeviceMemory::unmap_pages(std::size_t offset, std::size_t page_nbytes) {
  ::mmap(host_base_ + offset, page_nbytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

FailurePtr DeviceMemory::create_physical_locked(std::size_t nbytes, std::uint64_t* physical) {
  note_use();
  const auto page_nbytes = whole_pages(nbytes);
  const auto file_offset = pages_.take(page_nbytes, page);
  if (!file_offset) {
    return make_failure(Fault::out_of_memory,
                        "out of device memory: asked for " + std::to_string(nbytes) + " bytes, " +
                            std::to_string(capacity_nbytes_ - used_nbytes_) + " of " +
                            std::to_string(capacity_nbytes_) + " are free. " +
                            device_settings().prefix + "_MEMORY sets the limit.");
  }
  used_nbytes_ += page_nbytes;
  *physical = next_physical_++;
  physicals_.emplace(*physical, Physical{*file_offset, page_nbytes});
  return nullptr;
}

void DeviceMemory::drop_if_unused(std::uint64_t physical) {
  const auto it = physicals_.find(physical);
  const auto& memory = it->second;
  if (!memory.destroyed || memory.mapped > 0) return;
  // Give the pages back to the system; who gets them next reads zeros.
  ::fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(memory.file_offset),
              static_cast<off_t>(memory.page_nbytes));
  pages_.give_back(memory.file_offset, memory.page_nbytes);
  used_nbytes_ -= memory.page_nbytes;
  physicals_.erase(it);
}

FailurePtr DeviceMemory::allocate(std::size_t nbytes, void** device) {
  if (nbytes == 0) return invalid("an allocation of 0 bytes");
  std::unique_lock lock(mutex_);
  std::uint64_t physical = 0;
  if (auto failure = create_physical_locked(nbytes, &physical)) return failure;
  auto& memory = physicals_.at(physical);
  memory.destroyed = true;  // lives as long as it is mapped
  memory.mapped = 1;
  // One page more than needed: a kernel that runs past the end faults instead of reaching its neighbour.
  const auto address_nbytes = memory.page_nbytes + page;
  const auto offset = addresses_.take(address_nbytes, page);
  if (!offset) {
    memory.mapped = 0;
    drop_if_unused(physical);
    return make_failure(Fault::out_of_memory, "out of device addresses");
  }
  map_pages(*offset, memory.page_nbytes, memory.file_offset);
  mappings_.emplace(*offset, Mapping{nbytes, memory.page_nbytes, physical});
  allocations_.emplace(*offset, address_nbytes);
  *device = device_base_ + *offset;
  return nullptr;
}

FailurePtr DeviceMemory::free(void* device) {
  std::unique_lock lock(mutex_);
  const auto allocation = contains(device) ? allocations_.find(offset_of(device)) : allocations_.end();
  if (allocation == allocations_.end()) return invalid(named(device) + " is not the start of an allocation");
  const auto offset = allocation->first;
  const auto mapping = mappings_.at(offset);
  unmap_pages(offset, mapping.page_nbytes);
  mappings_.erase(offset);
  --physicals_.at(mapping.physical).mapped;
  drop_if_unused(mapping.physical);
  addresses_.give_back(offset, allocation->second);
  allocations_.erase(allocation);
  return nullptr;
}

FailurePtr DeviceMemory::reserve(std::size_t nbytes, std::size_t alignment, void** device) {
  constexpr std::size_t usual_alignment = std::size_t{2} << 20;
  if (alignment == 0) alignment = usual_alignment;
  if (nbytes == 0 || (alignment & (alignment - 1)) != 0) {
    return invalid("a reservation of " + std::to_string(nbytes) + " bytes aligned to " + std::to_string(alignment));
  }
  std::unique_lock lock(mutex_);
  const auto address_nbytes = whole_pages(nbytes);
  const auto offset = addresses_.take(address_nbytes, std::max(alignment, page));
  if (!offset) return make_failure(Fault::out_of_memory, "out of device addresses");
  reservations_.emplace(*offset, address_nbytes);
  *device = device_base_ + *offset;
  return nullptr;
}

FailurePtr DeviceMemory::release(void* device) {
  std::unique_lock lock(mutex_);
  const auto reservation = contains(device) ? reservations_.find(offset_of(device)) : reservations_.end();
  if (reservation == reservations_.end()) return invalid(named(device) + " is not the start of a reservation");
  const auto [offset, nbytes] = *reservation;
  const auto mapped = mappings_.lower_bound(offset);
  if (mapped != mappings_.end() && mapped->first < offset + nbytes) {
    return invalid("the reservation at " + named(device) + " still has memory mapped");
  }
  addresses_.give_back(offset, nbytes);
  reservations_.erase(reservation);
  return nullptr;
}

FailurePtr DeviceMemory::create_physical(std::size_t nbytes, std::uint64_t* physical) {
  if (nbytes == 0) return invalid("physical memory of 0 bytes");
  std::unique_lock lock(mutex_);
  return create_physical_locked(nbytes, physical);
}

FailurePtr DeviceMemory::destroy_physical(std::uint64_t physical) {
  std::unique_lock lock(mutex_);
  const auto it = physicals_.find(physical);
  if (it == physicals_.end() || it->second.destroyed) {
    return invalid("physical memory " + std::to_string(physical) + " does not exist");
  }
  it->second.destroyed = true;
  drop_if_unused(physical);
  return nullptr;
}

FailurePtr DeviceMemory::map(void* device, std::size_t nbytes, std::size_t offset, std::uint64_t physical) {
  std::unique_lock lock(mutex_);
  const auto memory = physicals_.find(physical);
  if (memory == physicals_.end()) return invalid("physical memory " + std::to_string(physical) + " does not exist");
  const auto start = offset_of(device);
  const auto page_nbytes = whole_pages(nbytes);
  auto reservation = contains(device) ? reservations_.upper_bound(start) : reservations_.begin();
  if (reservation == reservations_.begin() || start % page != 0) {
    return invalid(named(device) + " is not in a reservation or not on a page");
  }
  --reservation;
  if (nbytes == 0 || start + page_nbytes > reservation->first + reservation->second) {
    return invalid(std::to_string(nbytes) + " bytes at " + named(device) + " do not fit the reservation");
  }
  if (offset % page != 0 || offset > memory->second.page_nbytes || page_nbytes > memory->second.page_nbytes - offset) {
    return invalid(std::to_string(nbytes) + " bytes at offset " + std::to_string(offset) +
                   " do not fit the physical memory");
  }
  const auto next = mappings_.lower_bound(start);
  const bool overlaps_next = next != mappings_.end() && next->first < start + page_nbytes;
  const bool overlaps_previous =
      next != mappings_.begin() && std::prev(next)->first + std::prev(next)->second.page_nbytes > start;
  if (overlaps_next || overlaps_previous) return invalid(named(device) + " already has memory mapped");
  map_pages(start, page_nbytes, memory->second.file_offset + offset);
  mappings_.emplace(start, Mapping{nbytes, page_nbytes, physical});
  ++memory->second.mapped;
  return nullptr;
}

FailurePtr DeviceMemory::unmap(void* device) {
  std::unique_lock lock(mutex_);
  const auto offset = offset_of(device);
  const auto mapping = contains(device) ? mappings_.find(offset) : mappings_.end();
  if (mapping == mappings_.end() || allocations_.contains(offset)) {
    return invalid(named(device) + " is not the start of a mapping");
  }
  const auto physical = mapping->second.physical;
  unmap_pages(offset, mapping->second.page_nbytes);
  mappings_.erase(mapping);
  --physicals_.at(physical).mapped;
  drop_if_unused(physical);
  return nullptr;
}

FailurePtr DeviceMemory::check_range(const void* device, std::size_t nbytes) const {
  std::shared_lock lock(mutex_);
  auto offset = offset_of(device);
  const auto end = offset + nbytes;
  auto mapping = mappings_.upper_bound(offset);
  if (mapping != mappings_.begin()) --mapping;
  // A range may span several mappings of one reservation, as long as there is no hole.
  while (offset < end) {
    if (mapping == mappings_.end() || mapping->first > offset || mapping->first + mapping->second.nbytes <= offset) {
      return invalid(std::to_string(nbytes) + " bytes at " + named(device) +
                     " are not all allocated device memory: nothing is mapped at " + named(device_base_ + offset));
    }
    offset = mapping->first + mapping->second.nbytes;
    ++mapping;
  }
  return nullptr;
}

std::size_t DeviceMemory::free_nbytes() const {
  std::shared_lock lock(mutex_);
  return capacity_nbytes_ - used_nbytes_;
}

}  // namespace simdevice
