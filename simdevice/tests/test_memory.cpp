// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <vector>

#include "check.h"
#include "simdevice/memory/device_memory.h"
#include "simdevice/memory/extents.h"
#include "simdevice/memory/host_memory.h"

using namespace simdevice;

namespace {

constexpr std::size_t mib = std::size_t{1} << 20;

}  // namespace

TEST(extents_join_what_is_given_back) {
  Extents extents(100);
  const auto first = extents.take(30, 1);
  const auto second = extents.take(30, 1);
  const auto third = extents.take(40, 1);
  CHECK(first == 0 && second == 30 && third == 60 && !extents.take(1, 1));
  extents.give_back(30, 30);
  extents.give_back(0, 30);
  extents.give_back(60, 40);
  CHECK(extents.take(100, 1) == 0);
}

TEST(extents_respect_alignment) {
  Extents extents(256);
  CHECK(extents.take(10, 1) == 0);
  CHECK(extents.take(64, 64) == 64);
  CHECK(extents.take(54, 1) == 10);
}

TEST(memory_is_reached_through_the_host_view_only) {
  DeviceMemory memory(16 * mib);
  void* device = nullptr;
  CHECK(!memory.allocate(1000, &device));
  CHECK(memory.contains(device) && memory.host_view(device) != device);
  std::memset(memory.host_view(device), 42, 1000);
  CHECK(static_cast<char*>(memory.host_view(static_cast<char*>(device) + 999))[0] == 42);
  int on_host = 0;
  CHECK(!memory.contains(&on_host) && memory.host_view(&on_host) == nullptr);
  CHECK(!memory.free(device));
}

TEST(ranges_are_checked) {
  DeviceMemory memory(16 * mib);
  void* device = nullptr;
  CHECK(!memory.allocate(1000, &device));
  CHECK(!memory.check_range(device, 1000));
  CHECK(memory.check_range(device, 1001)->status == status_of(Fault::invalid_argument));
  CHECK(!memory.free(device));
  CHECK(memory.check_range(device, 1));
}

TEST(the_limit_is_kept_and_freed_memory_comes_back_empty) {
  DeviceMemory memory(4 * mib);
  void* first = nullptr;
  void* second = nullptr;
  CHECK(!memory.allocate(3 * mib, &first));
  const auto failure = memory.allocate(2 * mib, &second);
  CHECK(failure->status == status_of(Fault::out_of_memory));
  CHECK_CONTAINS(failure->message, "TEST_MEMORY");
  CHECK(memory.free_nbytes() == mib);
  std::memset(memory.host_view(first), 1, 3 * mib);
  CHECK(!memory.free(first));
  CHECK(memory.free_nbytes() == 4 * mib);
  CHECK(!memory.allocate(4 * mib, &second));
  CHECK(static_cast<char*>(memory.host_view(second))[0] == 0);
}

TEST(a_wrong_free_is_refused) {
  DeviceMemory memory(mib);
  void* device = nullptr;
  CHECK(!memory.allocate(8192, &device));
  CHECK(memory.free(static_cast<char*>(device) + 1));
  CHECK(!memory.free(device));
  CHECK(memory.free(device));
  CHECK(memory.free(nullptr));
}

TEST(physical_memory_can_be_mapped_twice) {
  DeviceMemory memory(64 * mib);
  void* base = nullptr;
  CHECK(!memory.reserve(32 * mib, 0, &base));
  CHECK(reinterpret_cast<std::uintptr_t>(base) % (2 * mib) == 0);
  auto* const upper = static_cast<char*>(base) + 16 * mib;
  std::uint64_t physical = 0;
  CHECK(!memory.create_physical(2 * mib, &physical));
  CHECK(memory.check_range(base, 1));
  CHECK(!memory.map(base, 2 * mib, 0, physical));
  CHECK(!memory.map(upper, 2 * mib, 0, physical));
  static_cast<char*>(memory.host_view(base))[5] = 9;
  CHECK(static_cast<char*>(memory.host_view(upper))[5] == 9);
  CHECK(memory.map(base, 2 * mib, 0, physical));               // taken
  CHECK(memory.map(base, 2 * mib, 4096, physical));            // longer than the memory
  CHECK(memory.release(base));                                 // still mapped
  CHECK(!memory.destroy_physical(physical));                   // lives until it is unmapped
  CHECK(memory.free_nbytes() == 62 * mib);
  CHECK(!memory.unmap(base));
  CHECK(static_cast<char*>(memory.host_view(upper))[5] == 9);
  CHECK(!memory.unmap(upper));
  CHECK(memory.free_nbytes() == 64 * mib);
  CHECK(!memory.release(base));
  CHECK(memory.destroy_physical(physical));
}

TEST(a_range_may_span_mappings) {
  DeviceMemory memory(64 * mib);
  void* base = nullptr;
  CHECK(!memory.reserve(8 * mib, 0, &base));
  std::vector<std::uint64_t> parts(2);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    CHECK(!memory.create_physical(2 * mib, &parts[i]));
    CHECK(!memory.map(static_cast<char*>(base) + i * 2 * mib, 2 * mib, 0, parts[i]));
  }
  CHECK(!memory.check_range(base, 4 * mib));
  CHECK(memory.check_range(base, 4 * mib + 1));
}

TEST(host_memory_is_known_by_its_range) {
  HostMemory memory;
  void* owned = nullptr;
  CHECK(!memory.allocate(100, &owned));
  CHECK(memory.contains(static_cast<char*>(owned) + 99) && !memory.contains(static_cast<char*>(owned) + 100));
  CHECK(!memory.free(owned));
  std::vector<char> buffer(64);
  CHECK(!memory.contains(buffer.data()));
  CHECK(!memory.add(buffer.data(), buffer.size()));
  CHECK(memory.add(buffer.data(), buffer.size())->status == status_of(Fault::host_memory_registered));
  CHECK(memory.contains(buffer.data() + 10));
  CHECK(memory.free(buffer.data()));  // not ours
  CHECK(!memory.remove(buffer.data()));
  CHECK(memory.remove(buffer.data()));
}
