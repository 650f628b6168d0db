// SPDX-License-Identifier: Apache-2.0
// The communicators of a process, by the pointers that callers hold.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "simdevice/collectives/communicator.h"

namespace simdevice {

// Work on streams shares them.
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
  // Once all work that calls it is gone. False where some still is, such as a graph's, when patience ends.
  bool end(const void* handle, std::chrono::seconds patience) {
    auto communicator = find(handle);
    if (!communicator) return true;
    // This one's, and the one in the table.
    constexpr long ours = 2;
    const auto until = std::chrono::steady_clock::now() + patience;
    while (communicator.use_count() > ours) {
      if (std::chrono::steady_clock::now() >= until) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    std::lock_guard lock(mutex_);
    all_.erase(handle);
    return true;
  }

 private:
  std::mutex mutex_;
  std::unordered_map<const void*, CommunicatorPtr> all_;
};

}  // namespace simdevice
