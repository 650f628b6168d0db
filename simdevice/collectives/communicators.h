// SPDX-License-Identifier: Apache-2.0
// The communicators of a process, by the pointers that callers hold.
#pragma once

#include <memory>
#include <mutex>
#include <unordered_map>

#include "simdevice/collectives/communicator.h"

namespace simdevice {

// Work on streams shares them: a graph may be replayed after its communicator's end, which the replay then says.
using CommunicatorPtr = std::shared_ptr<Communicator>;

class Communicators {
 public:
  // Never destroyed: streams may still run while the process ends.
  static Communicators& get() {
    static auto& all = *new Communicators;
    return all;
  }

  void* add(CommunicatorPtr communicator) {
    std::lock_guard lock(mutex_);
    void* handle = communicator.get();
    all_.emplace(handle, std::move(communicator));
    return handle;
  }
  // Null where the pointer is not, or no longer, one.
  CommunicatorPtr find(const void* handle) {
    std::lock_guard lock(mutex_);
    const auto it = all_.find(handle);
    return it == all_.end() ? nullptr : it->second;
  }
  void end(const void* handle) {
    std::lock_guard lock(mutex_);
    const auto it = all_.find(handle);
    if (it == all_.end()) return;
    it->second->abort();
    all_.erase(it);
  }

 private:
  std::mutex mutex_;
  std::unordered_map<const void*, CommunicatorPtr> all_;
};

}  // namespace simdevice
