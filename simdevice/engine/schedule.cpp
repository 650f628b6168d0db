// SPDX-License-Identifier: Apache-2.0
#include "simdevice/engine/schedule.h"

#include <chrono>
#include <thread>

namespace simdevice {
namespace {

using std::chrono::microseconds;

// How long a kernel waits for later submissions to other streams, and for one of those to finish.
constexpr microseconds grace{2000};
constexpr microseconds patience{100000};
constexpr std::uint64_t longest_pause_us = 400;

}  // namespace

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

}  // namespace simdevice
