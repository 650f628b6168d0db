// SPDX-License-Identifier: Apache-2.0
// An event: the last point at which it was recorded, in a stream's work or in a capture.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>

#include "simdevice/engine/completion.h"

namespace simdevice {

class Capture;

class Event {
 public:
  explicit Event(std::uint32_t flags) : flags_(flags) {}

  std::uint32_t flags() const noexcept { return flags_; }

  // What a wait, a query or a synchronisation refers to. At most one of the two is set, neither before a record.
  struct Recorded {
    CompletionPtr point;
    std::weak_ptr<Capture> capture;
    std::uint32_t node = 0;  // in the capture
  };
  Recorded last() const {
    std::lock_guard lock(mutex_);
    return last_;
  }
  void set(Recorded recorded) {
    std::lock_guard lock(mutex_);
    last_ = std::move(recorded);
  }

  // The number that an external event carries.
  std::uint64_t* cell() noexcept { return &cell_; }

 private:
  const std::uint32_t flags_;
  mutable std::mutex mutex_;
  Recorded last_;
  std::uint64_t cell_ = 0;
};

}  // namespace simdevice
