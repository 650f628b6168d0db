// SPDX-License-Identifier: Apache-2.0
#include "simdevice/memory/host_memory.h"

#include <cstdlib>
#include <iterator>
#include <mutex>
#include <sstream>

#include "simdevice/memory/page.h"

namespace simdevice {
namespace {

FailurePtr not_known(const void* host) {
  std::ostringstream text;
  text << host << " is not the start of host memory that the device knows";
  return make_failure(Fault::invalid_argument, text.str());
}

}  // namespace

FailurePtr HostMemory::allocate(std::size_t nbytes, void** host) {
  if (nbytes == 0) return make_failure(Fault::invalid_argument, "a host allocation of 0 bytes");
  void* memory = std::aligned_alloc(page, (nbytes + page - 1) / page * page);
  if (memory == nullptr) return make_failure(Fault::out_of_memory, "out of host memory");
  std::unique_lock lock(mutex_);
  ranges_.emplace(static_cast<const char*>(memory), Range{nbytes, true});
  *host = memory;
  return nullptr;
}

FailurePtr HostMemory::free(void* host) {
  {
    std::unique_lock lock(mutex_);
    const auto it = ranges_.find(static_cast<const char*>(host));
    if (it == ranges_.end() || !it->second.owned) return not_known(host);
    ranges_.erase(it);
  }
  std::free(host);
  return nullptr;
}

FailurePtr HostMemory::add(void* host, std::size_t nbytes) {
  std::unique_lock lock(mutex_);
  if (!ranges_.emplace(static_cast<const char*>(host), Range{nbytes, false}).second) {
    return make_failure(Fault::host_memory_registered, "this host memory is registered already");
  }
  return nullptr;
}

FailurePtr HostMemory::remove(void* host) {
  std::unique_lock lock(mutex_);
  const auto it = ranges_.find(static_cast<const char*>(host));
  if (it == ranges_.end() || it->second.owned) {
    return make_failure(Fault::host_memory_unknown, "this host memory is not registered");
  }
  ranges_.erase(it);
  return nullptr;
}

bool HostMemory::contains(const void* host) const {
  std::shared_lock lock(mutex_);
  const auto* address = static_cast<const char*>(host);
  auto it = ranges_.upper_bound(address);
  if (it == ranges_.begin()) return false;
  --it;
  return address < it->first + it->second.nbytes;
}

}  // namespace simdevice
