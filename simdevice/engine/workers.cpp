// SPDX-License-Identifier: Apache-2.0
#include "simdevice/engine/workers.h"

#include <thread>

namespace simdevice {

void Workers::start(std::function<void()> body) {
  {
    std::lock_guard lock(mutex_);
    ++running_;
  }
  std::thread([this, body = std::move(body)] {
    body();
    std::lock_guard lock(mutex_);
    --running_;
    left_.notify_all();
  }).detach();
}

bool Workers::wait_until_left(std::chrono::milliseconds patience) {
  if (in_forked_child()) return true;
  std::unique_lock lock(mutex_);
  return left_.wait_for(lock, patience, [this] { return running_ == 0; });
}

}  // namespace simdevice
