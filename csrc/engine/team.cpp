#include "team.h"

#include <pthread.h>

#include <algorithm>
#include <future>
#include <new>
#include <system_error>
#include <utility>

#include "guard.h"
#include "helped.h"
#include "spin.h"

namespace airgraph {
namespace {

// A worker that found nothing to do for so long sleeps. Waking it costs about as much.
constexpr auto kAwake = std::chrono::microseconds(50);
// The clock is read once in so many looks.
constexpr int kLooks = 16;
// Workers that find nothing are woken after 2 to the power of at most so many times what they stay awake, about 50 ms.
constexpr unsigned kMostFruitless = 10;

}  // namespace

Team::Team() = default;

Team& Team::instance() {
  // Never destroyed: threads may outlive what is static.
  static auto* team = [] {
    auto* made = new Team();
    // A fork by a thread that is not in the interpreter may fall into `join` or `leave` of another.
    pthread_atfork([] { Team::instance().staff_mutex_.lock(); }, [] { Team::instance().staff_mutex_.unlock(); },
                   [] { Team::instance().survive_fork(); });
    return made;
  }();
  return *team;
}

void Team::join(Helped& helped) {
  const std::lock_guard staff(staff_mutex_);
  helped_.insert(&helped);
  try {
    hire();
  } catch (...) {
    helped_.erase(&helped);
    throw;
  }
}

void Team::leave(Helped& helped) {
  const std::lock_guard staff(staff_mutex_);
  helped_.erase(&helped);
  auto* expected = &helped;
  offered_.compare_exchange_strong(expected, nullptr);
  for (const auto& worker : workers_) {
    while (worker->visited.load() == &helped) {
      std::this_thread::yield();
    }
  }
  if (helped_.empty()) {
    dismiss();
  }
}

bool Team::offer(Helped& helped) {
  if (busy_.exchange(true, std::memory_order_acquire)) {
    return false;
  }
  if (understaffed_.load(std::memory_order_relaxed)) {
    const std::lock_guard staff(staff_mutex_);
    hire();
  }
  if (offered_.load(std::memory_order_relaxed) != &helped) {
    offered_.store(&helped);
  }
  if (has_sleepers()) {
    const auto now = Clock::now();
    const auto pause = kAwake * (1U << std::min(fruitless_.load(std::memory_order_relaxed), kMostFruitless));
    if (now - last_missed_ < kAwake && now - last_woken_ > pause) {
      wake(helped.threads() - 1);
      last_woken_ = now;
      fruitless_.fetch_add(1, std::memory_order_relaxed);
    }
    last_missed_ = now;
  }
  return true;
}

void Team::wake(size_t most) {
  size_t woken = 0;
  {
    const std::lock_guard lock(mutex_);
    for (size_t number = 0; number < std::min(most, workers_.size()); ++number) {
      woken += std::exchange(workers_[number]->sleeps, false) ? 1 : 0;
    }
    sleepers_.fetch_sub(woken, std::memory_order_relaxed);
  }
  // Of those that sleep, others may be the only ones.
  if (woken != 0) {
    wanted_.notify_all();
  }
}

void Team::hire() {
  size_t wanted = 0;
  for (const auto* each : helped_) {
    wanted = std::max(wanted, each->threads() - 1);
  }
  while (workers_.size() < wanted) {
    auto worker = std::make_unique<Worker>();
    auto& self = *worker;
    const size_t number = workers_.size();
    {
      const std::lock_guard lock(mutex_);
      workers_.push_back(std::move(worker));
    }
    std::promise<void> is_set_up;
    auto set_up = is_set_up.get_future();
    try {
      self.thread = std::thread([this, &self, number, is_set_up = std::move(is_set_up)]() mutable {
        // Torch's threads of this thread are set up now: later that would undo the share that is set.
        at::get_num_threads();
        is_set_up.set_value();
        work(self, number);
      });
      // One after the other: after a fork, torch makes its pool anew at this call, without a lock.
      set_up.wait();
    } catch (const std::system_error&) {
      // No more threads are to be had. The thread that replays does the work.
      const std::lock_guard lock(mutex_);
      workers_.pop_back();
      break;
    }
  }
  understaffed_.store(false, std::memory_order_relaxed);
}

void Team::dismiss() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  wanted_.notify_all();
  for (const auto& worker : workers_) {
    worker->thread.join();
  }
  const std::lock_guard lock(mutex_);
  workers_.clear();
  sleepers_.store(0, std::memory_order_relaxed);
  ends_ = false;
}

void Team::work(Worker& self, size_t number) {
  const ReplayGuard guard;
  auto idle_since = Clock::now();
  int looks = 0;
  while (true) {
    auto* helped = offered_.load(std::memory_order_acquire);
    bool found = false;
    if (helped != nullptr) {
      // Once this is seen, it stays; if it was withdrawn before, that is seen here.
      self.visited.store(helped);
      found = offered_.load() == helped && helped->help(number);
      self.visited.store(nullptr, std::memory_order_release);
    }
    if (found) {
      idle_since = Clock::now();
      looks = 0;
      if (fruitless_.load(std::memory_order_relaxed) != 0) {
        fruitless_.store(0, std::memory_order_relaxed);
      }
      continue;
    }
    pause_spinning();
    if (++looks % kLooks != 0 || Clock::now() - idle_since < kAwake) {
      continue;
    }
    std::unique_lock lock(mutex_);
    if (ends_) {
      return;
    }
    self.sleeps = true;
    sleepers_.fetch_add(1, std::memory_order_relaxed);
    wanted_.wait(lock, [&] { return ends_ || !self.sleeps; });
    if (ends_) {
      return;
    }
    idle_since = Clock::now();
  }
}

void Team::survive_fork() {
  // Those who held these are not here any more.
  auto all = std::move(helped_);
  for (auto& worker : workers_) {
    // Its thread is not here, so there is nothing to end.
    worker.release();  // NOLINT(bugprone-unused-return-value)
  }
  const unsigned forks = forks_ + 1;
  new (this) Team();
  forks_ = forks;
  helped_ = std::move(all);
  understaffed_.store(!helped_.empty(), std::memory_order_relaxed);
  for (auto* each : helped_) {
    each->survive_fork();
  }
}

}  // namespace airgraph
