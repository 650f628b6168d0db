// SPDX-License-Identifier: Apache-2.0
// The threads of the simulated device: started on demand, counted, and told to leave when the process ends.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>

#include "simdevice/fork.h"

namespace simdevice {

class Workers {
 public:
  // Run `body` on a thread of its own. The thread is detached: a body that never returns must not hang the process.
  void start(std::function<void()> body);

  // From now on `stopping()` is true. Whoever lets threads sleep must wake them afterwards.
  void request_stop() noexcept { stopping_.store(true, std::memory_order_release); }
  // False if some threads are still there when patience ends.
  bool wait_until_left(std::chrono::milliseconds patience);

  bool stopping() const noexcept { return stopping_.load(std::memory_order_acquire); }

 private:
  std::atomic<bool> stopping_{false};
  std::mutex mutex_;
  std::condition_variable left_;
  std::size_t running_ = 0;
};
}  // namespace simdevice
