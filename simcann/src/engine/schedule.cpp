// SPDX-License-Identifier: Apache-2.0
#include "engine/schedule.h"

#include <chrono>
#include <thread>

namespace simcann {
namespace {

using std::chrono::microseconds;

// How long a kernel waits for later submissions to other streams, and for one of those to finish.
constexpr microseconds grace{2000};
constexpr microseconds patience{100000};
constexpr std::uint64_t longest_pause_us = 400;

}  // namespace

// The finaliser of splitmix64 (Steele, Lea and Flood, 2014).
std::uint64_t mix(std::uint64_t seed, std::uint64_t value) noexcept {
  std::uint64_t z = seed + (value + 1) * 0x9E3779B97F4A7C15ULL;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

void Turnstile::announce(std::uint64_t sequence) {
  if (schedule_.order != Order::adversarial) return;
  std::lock_guard lock(mutex_);
  ready_.insert(sequence);
}

void Turnstile::enter(std::uint64_t sequence) {
  if (schedule_.order == Order::parallel) return;
  if (schedule_.order == Order::seeded) {
    std::this_thread::sleep_for(microseconds(mix(schedule_.seed, sequence) % longest_pause_us));
    return;
  }
  announce(sequence);
  std::this_thread::sleep_for(grace);
  std::unique_lock lock(mutex_);
  // Bounded: the kernel in front may itself wait for this one through memory, which no rule here can see.
  changed_.wait_for(lock, patience, [&] { return *ready_.rbegin() == sequence; });
}

void Turnstile::leave(std::uint64_t sequence) {
  if (schedule_.order != Order::adversarial) return;
  std::lock_guard lock(mutex_);
  ready_.erase(sequence);
  changed_.notify_all();
}

}  // namespace simcann
