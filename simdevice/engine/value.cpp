// SPDX-License-Identifier: Apache-2.0
#include "simdevice/engine/value.h"

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace simdevice {
namespace {

// One for all cells: there are few waits, and a spurious wake-up costs little.
struct Board {
  std::mutex mutex;
  std::condition_variable written;
};

Board& board() {
  static Board& instance = *new Board;
  return instance;
}

// How late a write that did not come through write_value may be seen.
constexpr std::chrono::microseconds poll{500};

}  // namespace

bool passes(std::uint64_t value, ValueTest test, std::uint64_t expected) noexcept {
  switch (test) {
    case ValueTest::at_least:
      return static_cast<std::int64_t>(value - expected) >= 0;
    case ValueTest::equal:
      return value == expected;
    case ValueTest::any_bit:
      return (value & expected) != 0;
    case ValueTest::nor:
      return ~(value | expected) != 0;
  }
  return false;
}

std::uint64_t read_value(const std::uint64_t* cell) noexcept { return __atomic_load_n(cell, __ATOMIC_ACQUIRE); }

void write_value(std::uint64_t* cell, std::uint64_t value) {
  std::lock_guard lock(board().mutex);
  __atomic_store_n(cell, value, __ATOMIC_RELEASE);
  board().written.notify_all();
}

void wait_for_value(const std::uint64_t* cell, ValueTest test, std::uint64_t expected,
                    const std::function<bool()>& give_up) {
  std::unique_lock lock(board().mutex);
  while (!passes(read_value(cell), test, expected) && !give_up()) board().written.wait_for(lock, poll);
}

}  // namespace simdevice
