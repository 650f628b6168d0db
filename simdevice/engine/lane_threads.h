// SPDX-License-Identifier: Apache-2.0
// Threads for the lanes of replays: as many as were needed at a time, kept for the next replay.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>

#include "simdevice/engine/workers.h"

namespace simdevice {

class LaneThreads {
 public:
  explicit LaneThreads(Workers& workers) : workers_(workers) {}

  // Every job gets a thread of its own at once: jobs may wait for each other.
  void start(std::function<void()> job);
  // Let idle threads notice that the workers are to stop.
  void wake();

 private:
  void serve();

  Workers& workers_;
  std::mutex mutex_;
  std::condition_variable added_;
  std::deque<std::function<void()>> jobs_;
  std::size_t idle_ = 0;
};

}  // namespace simdevice
