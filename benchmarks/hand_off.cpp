// What two cores need to tell each other one thing: a thread writes a number, another answers by writing it back.
//
//     c++ -O2 -pthread hand_off.cpp -o hand_off && ./hand_off
//
// Prints the median of the time for there and back, in nanoseconds. No fork and join of a stream can take less: the
// first store says that there is work, the second that it is done.
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <thread>
#include <vector>

namespace {

constexpr long block = 1000, blocks = 2001;

// A cache line of its own each.
struct alignas(128) Line {
  std::atomic<long> number{0};
};

void pin(int core) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(core, &cores);
  pthread_setaffinity_np(pthread_self(), sizeof cores, &cores);
}

}  // namespace

int main() {
  Line there, back;
  std::thread other([&] {
    pin(1);
    for (long number = 1; number <= block * blocks; ++number) {
      while (there.number.load(std::memory_order_acquire) != number) {
      }
      back.number.store(number, std::memory_order_release);
    }
  });
  pin(0);
  std::vector<double> each;
  long number = 0;
  for (long i = 0; i < blocks; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    for (long j = 0; j < block; ++j) {
      there.number.store(++number, std::memory_order_release);
      while (back.number.load(std::memory_order_acquire) != number) {
      }
    }
    const std::chrono::duration<double, std::nano> taken = std::chrono::steady_clock::now() - begin;
    each.push_back(taken.count() / block);
  }
  other.join();
  std::sort(each.begin(), each.end());
  std::printf("%.1f %.1f %.1f\n", each[blocks / 4], each[blocks / 2], each[3 * blocks / 4]);
}
