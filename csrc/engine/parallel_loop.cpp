#include "parallel_loop.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <thread>

#include "spin.h"
#include "team.h"
#include "thread_share.h"

namespace airgraph {
namespace {

// A loop that takes so long is worth waking a worker for.
constexpr size_t kWorthWakingNs = 30'000;
// A loop that takes so long is worth a region of OpenMP's.
constexpr size_t kWorthRegionNs = 10'000;
// How often the calling thread looks for the end of the parts that workers have, before it gives way to others.
constexpr int kMostLooks = 2000;
constexpr int kMostInVain = 6;

thread_local ParallelLoop* of_this_replay = nullptr;

}  // namespace

ParallelLoop::ParallelLoop(size_t threads) : threads_(threads) { Team::instance().join(*this); }

ParallelLoop::~ParallelLoop() {
  if (!is_atens_) {
    Team::instance().leave(*this);
  }
}

void ParallelLoop::leave_to_atens_threads() {
  if (!is_atens_ && GOMP_parallel != nullptr && omp_get_thread_num != nullptr) {
    Team::instance().leave(*this);
    is_atens_ = true;
    forks_ = Team::instance().forks();
  }
}

ParallelLoop::Replay::Replay(ParallelLoop* loop) : before_(of_this_replay) { of_this_replay = loop; }

ParallelLoop::Replay::~Replay() {
  if (of_this_replay != nullptr) {
    if (of_this_replay->has_help_) {
      Team::instance().done();
    }
    of_this_replay->asked_ = of_this_replay->has_help_ = false;
  }
  of_this_replay = before_;
}

size_t ParallelLoop::threads_of_next() { return of_this_replay == nullptr ? 1 : of_this_replay->threads_; }

void ParallelLoop::run(size_t parts, size_t part_ns, Body body, const void* context) {
  auto* const loop = of_this_replay;
  const size_t loop_ns = parts * part_ns;
  if (parts > 1 && loop != nullptr && at::get_num_threads() > 1) {
    // In the child of a fork OpenMP waits for threads that are not there.
    if (loop->is_atens_ && loop_ns >= kWorthRegionNs && loop->forks_ == Team::instance().forks()) {
      return loop->share_among_atens(parts, body, context);
    }
    if (!loop->is_atens_ && (!loop->asked_ || loop->has_help_)) {
      return loop->share(parts, loop_ns >= kWorthWakingNs, body, context);
    }
  }
  for (size_t part = 0; part < parts; ++part) {
    body(context, part, 0);
  }
}

void ParallelLoop::publish(size_t parts, Body body, const void* context) {
  body_.store(body, std::memory_order_relaxed);
  context_.store(context, std::memory_order_relaxed);
  floats_.store(float_control(), std::memory_order_relaxed);
  most_.store(std::min(threads_, static_cast<size_t>(at::get_num_threads())), std::memory_order_relaxed);
  done_.store(0, std::memory_order_relaxed);
  parts_.store(parts, std::memory_order_relaxed);
  own_ = 0;
  const uint64_t second = parts / 2;
  state_.store((++loops_ << kLoopShift) | (second << kHalfShift) | (parts - second), std::memory_order_release);
}

void ParallelLoop::take_parts() {
  size_t part = 0;
  while (claim(0, part)) {
    body_.load(std::memory_order_relaxed)(context_.load(std::memory_order_relaxed), part, 0);
    ++own_;
  }
}

void ParallelLoop::share(size_t parts, bool is_worth_waking, Body body, const void* context) {
  publish(parts, body, context);
  // Once there is work: a worker that wakes on this processor would find none, and sleep again.
  const bool woke = ask_for_help(parts, is_worth_waking);
  take_parts();
  wait_for_workers(parts);
  if (woke) {
    note(own_ < parts);
  }
}

void ParallelLoop::share_among_atens(size_t parts, Body body, const void* context) {
  publish(parts, body, context);
  const size_t threads = std::min(most_.load(std::memory_order_relaxed), parts);
  GOMP_parallel(&ParallelLoop::run_in_region, this, static_cast<unsigned>(threads), 0);
  // All are done. What they wrote comes before what follows.
  wait_for_workers(parts);
}

void ParallelLoop::run_in_region(void* loop) {
  auto& self = *static_cast<ParallelLoop*>(loop);
  const int thread = omp_get_thread_num();
  if (thread == 0) {
    return self.take_parts();
  }
  const auto before = float_control();
  self.help(static_cast<size_t>(thread) - 1);
  // The thread is ATen's.
  set_float_control(before);
}

bool ParallelLoop::ask_for_help(size_t parts, bool is_worth_waking) {
  auto& team = Team::instance();
  if (is_worth_waking && loops_to_pass_ > 0) {
    --loops_to_pass_;
    is_worth_waking = false;
  }
  if (!asked_) {
    asked_ = true;
    has_help_ = team.offer(*this);
  }
  if (!has_help_ || !is_worth_waking || !team.has_sleepers()) {
    return false;
  }
  team.wake(std::min(parts, most_.load(std::memory_order_relaxed)) - 1);
  return true;
}

void ParallelLoop::note(bool found_help) {
  in_vain_ = found_help ? 0 : std::min(in_vain_ + 1, kMostInVain);
  loops_to_pass_ = found_help ? 0 : 1 << in_vain_;
}

bool ParallelLoop::claim(size_t thread, size_t& part) {
  uint64_t state = state_.load(std::memory_order_acquire);
  while (true) {
    const size_t left[] = {state & kMostParts, (state >> kHalfShift) & kMostParts};
    if (left[0] + left[1] == 0) {
      return false;
    }
    const size_t half = left[thread % 2] > 0 ? thread % 2 : 1 - thread % 2;
    const uint64_t one = half == 0 ? 1 : uint64_t{1} << kHalfShift;
    if (state_.compare_exchange_weak(state, state - one, std::memory_order_acq_rel, std::memory_order_acquire)) {
      // Of this loop, which is not over before the part is done.
      const size_t parts = parts_.load(std::memory_order_relaxed);
      part = (half == 0 ? parts - parts / 2 : parts) - left[half];
      return true;
    }
  }
}

bool ParallelLoop::help(size_t worker) {
  bool found = false;
  while (true) {
    // What belongs to the loop that a part is claimed of: the calling thread waits for that part before the next loop.
    size_t part = 0;
    if (worker + 1 >= most_.load(std::memory_order_relaxed) || !claim(worker + 1, part)) {
      return found;
    }
    set_float_control(floats_.load(std::memory_order_relaxed));
    found = true;
    body_.load(std::memory_order_relaxed)(context_.load(std::memory_order_relaxed), part, worker + 1);
    done_.fetch_add(1, std::memory_order_release);
  }
}

void ParallelLoop::wait_for_workers(size_t parts) {
  for (int looks = 0; own_ + done_.load(std::memory_order_acquire) < parts; ++looks) {
    if (looks < kMostLooks) {
      pause_spinning();
    } else {
      std::this_thread::yield();
    }
  }
}

void ParallelLoop::survive_fork() {
  // No loop is under way: replays of other threads are waited for, and a kernel does not fork.
  state_.store(0);
  asked_ = has_help_ = false;
}

}  // namespace airgraph
