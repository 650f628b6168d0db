// SPDX-License-Identifier: Apache-2.0
// In which of the allowed orders the device works. Any order that streams and events allow is a correct one; the
// hostile ones exist to make a missing wait show.
#pragma once

#include <cstdint>
#include <condition_variable>
#include <mutex>
#include <set>

namespace simdevice {

enum class Order {
  parallel,     // as the threads go
  adversarial,  // what was submitted or recorded last goes first, wherever no wait forbids it
  seeded,       // a random order, the same for the same seed
};

struct Schedule {
  Order order = Order::parallel;
  std::uint64_t seed = 0;
};

// Decides when a kernel at the head of its stream may start. Shared by all streams of a device.
class Turnstile {
 public:
  explicit Turnstile(Schedule schedule) : schedule_(schedule) {}

  // A kernel is at the head of its stream; its thread may still have to start. `sequence` grows with every submission,
  // whatever the stream.
  void announce(std::uint64_t sequence);
  // Returns when this kernel's turn has come.
  void enter(std::uint64_t sequence);
  // It is done, or will not run after all.
  void leave(std::uint64_t sequence);

 private:
  const Schedule schedule_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::set<std::uint64_t> ready_;
};

// A well-mixed hash of two numbers, the same on every machine, which std::hash does not promise: the finaliser of
// splitmix64 (Steele, Lea and Flood, 2014).
inline std::uint64_t mix(std::uint64_t seed, std::uint64_t value) noexcept {
  std::uint64_t z = seed + (value + 1) * 0x9E3779B97F4A7C15ULL;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

}  // namespace simdevice
