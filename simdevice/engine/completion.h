// SPDX-License-Identifier: Apache-2.0
// One point in a stream's work that others can wait for: finished once, with the stream's failure if it had one.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

#include "simdevice/engine/failure.h"

namespace simdevice {

// No value: wait without limit.
using Deadline = std::optional<std::chrono::steady_clock::time_point>;

// Milliseconds as the runtime's functions give them: negative means without limit.
Deadline deadline_after(std::int32_t timeout_ms);

class Completion {
 public:
  void finish(FailurePtr failure);
  bool finished() const;
  // False if the deadline passed first.
  bool wait(Deadline deadline = std::nullopt) const;
  // The two below are meaningful once finished.
  FailurePtr failure() const;
  std::uint64_t finished_at_ns() const;

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool finished_ = false;
  FailurePtr failure_;
  std::uint64_t finished_at_ns_ = 0;
};

using CompletionPtr = std::shared_ptr<Completion>;

}  // namespace simdevice
