// SPDX-License-Identifier: Apache-2.0
#include "simdevice/engine/completion.h"

namespace simdevice {

Deadline deadline_after(std::int32_t timeout_ms) {
  if (timeout_ms < 0) return std::nullopt;
  return std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
}

void Completion::finish(FailurePtr failure) {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  std::lock_guard lock(mutex_);
  finished_ = true;
  failure_ = std::move(failure);
  finished_at_ns_ = static_cast<std::uint64_t>(std::chrono::nanoseconds(now).count());
  // Under the lock: a waiter that returns may drop the last reference to this object.
  changed_.notify_all();
}

bool Completion::finished() const {
  std::lock_guard lock(mutex_);
  return finished_;
}

bool Completion::wait(Deadline deadline) const {
  std::unique_lock lock(mutex_);
  const auto is_finished = [this] { return finished_; };
  if (deadline) return changed_.wait_until(lock, *deadline, is_finished);
  changed_.wait(lock, is_finished);
  return true;
}

FailurePtr Completion::failure() const {
  std::lock_guard lock(mutex_);
  return failure_;
}

std::uint64_t Completion::finished_at_ns() const {
  std::lock_guard lock(mutex_);
  return finished_at_ns_;
}

}  // namespace simdevice
