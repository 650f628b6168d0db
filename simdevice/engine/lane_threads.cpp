// SPDX-License-Identifier: Apache-2.0
#include "simdevice/engine/lane_threads.h"

#include <utility>

namespace simdevice {

void LaneThreads::start(std::function<void()> job) {
  bool need_thread = false;
  {
    std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
    need_thread = jobs_.size() > idle_;
  }
  if (need_thread) {
    workers_.start([this] { serve(); });
  } else {
    added_.notify_one();
  }
}

void LaneThreads::wake() {
  std::lock_guard lock(mutex_);
  added_.notify_all();
}

void LaneThreads::serve() {
  std::unique_lock lock(mutex_);
  while (true) {
    ++idle_;
    added_.wait(lock, [this] { return !jobs_.empty() || workers_.stopping(); });
    --idle_;
    if (jobs_.empty()) return;
    auto job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    job();
    job = nullptr;
    lock.lock();
  }
}

}  // namespace simdevice
