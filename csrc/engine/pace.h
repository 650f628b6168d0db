// How long the last replays took, from a few of them: a look at the clock is a part of a short one.
#pragma once

#include <chrono>
#include <cstdint>

namespace airgraph {

// Guarded by the replay lock.
class Pace {
  using Clock = std::chrono::steady_clock;

 public:
  // Of what was measured last. False before.
  bool is_quick() const { return is_quick_; }

  // While it lives, a replay runs.
  class Turn {
   public:
    explicit Turn(Pace& pace) : pace_(pace), is_measured_(pace.turns_ < kFirst || pace.turns_ % kSeldom == 0) {
      ++pace.turns_;
      if (is_measured_) {
        begin_ = Clock::now();
      }
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    ~Turn() {
      if (is_measured_) {
        pace_.is_quick_ = Clock::now() - begin_ < kQuick;
      }
    }

   private:
    Pace& pace_;
    const bool is_measured_;
    Clock::time_point begin_;
  };

 private:
  // Another thread asks for Python's lock after 5 ms, so that it loses nothing where a replay keeps it for so long.
  static constexpr std::chrono::microseconds kQuick{20};
  static constexpr uint64_t kFirst = 4, kSeldom = 64;

  bool is_quick_ = false;
  uint64_t turns_ = 0;
};

}  // namespace airgraph
