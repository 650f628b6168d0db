#include "schedule.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <new>
#include <utility>

#include "failure.h"
#include "spin.h"
#include "team.h"

namespace airgraph {
namespace {

using Clock = std::chrono::steady_clock;

// A stream's state: the replay, how many of its parts are done in that, and whether the next is being run.
constexpr int kReplayShift = 24;
constexpr uint64_t kRunning = 1;
constexpr uint64_t kOnePart = 2;
constexpr uint64_t kPartsMask = (uint64_t{1} << kReplayShift) - 1;

uint64_t state_at(uint64_t replay, size_t parts) { return (replay << kReplayShift) | (parts * kOnePart); }

// How long the calling thread waits for a worker that is at it: spinning, giving way to others, then asleep.
constexpr auto kMostSpinning = std::chrono::microseconds(20);
constexpr auto kMostYielding = std::chrono::microseconds(200);
constexpr auto kNap = std::chrono::milliseconds(1);

}  // namespace

Schedule::Schedule(const std::vector<Entry>& entries, const std::vector<Segment>& segments, size_t threads,
                   bool is_worth_waking)
    : threads_(threads), is_worth_waking_(is_worth_waking) {
  size_t streams = 0;
  for (const auto& segment : segments) {
    streams = std::max(streams, segment.stream + 1);
  }
  streams_ = std::vector<Stream>(streams);
  for (const auto& segment : segments) {
    Part part{{}, segment.waits, segment.on_caller, false};
    for (const size_t index : segment.calls) {
      part.calls.push_back({entries.at(index), index});
    }
    streams_[segment.stream].parts.push_back(std::move(part));
  }
  for (const auto& segment : segments) {
    for (const auto& wait : segment.waits) {
      TORCH_CHECK(wait.stream < streams && wait.segments >= 1 && wait.segments <= streams_[wait.stream].parts.size(),
                  "a segment waits for what is not there");
      streams_[wait.stream].parts[wait.segments - 1].awaited = true;
    }
  }
  for (const auto& stream : streams_) {
    TORCH_CHECK(!stream.parts.empty() && stream.parts.size() < kPartsMask / kOnePart, "a stream of ",
                stream.parts.size(), " segments");
  }
  Team::instance().join(*this);
}

Schedule::~Schedule() { Team::instance().leave(*this); }

void Schedule::run() {
  const uint64_t replay = begun_.load(std::memory_order_relaxed);
  const int intra_op = std::max(1, at::get_num_threads() / static_cast<int>(threads_));
  const IntraOpThreads share(intra_op);
  failed_.store(kNone, std::memory_order_relaxed);
  floats_.store(float_control(), std::memory_order_relaxed);
  intra_op_.store(intra_op, std::memory_order_relaxed);
  runner_.store(std::this_thread::get_id(), std::memory_order_relaxed);
  begun_.store(replay + 1, std::memory_order_release);
  auto& team = Team::instance();
  const bool has_help = team.offer(*this, is_worth_waking_);
  bool is_finished = false;
  while (!is_finished) {
    if (!try_all(replay, is_finished) && !is_finished) {
      wait_for_workers(replay);
    }
  }
  if (has_help) {
    team.done();
  }
  runner_.store(std::thread::id(), std::memory_order_relaxed);
  if (failed_.load(std::memory_order_acquire) != kNone) {
    const std::lock_guard lock(failure_mutex_);
    std::rethrow_exception(std::exchange(failure_, nullptr));
  }
}

bool Schedule::help(size_t worker) {
  if (worker + 1 >= threads_) {
    return false;
  }
  bool found = false;
  // Each worker looks at another stream first; the calling thread has the first.
  for (size_t i = 1; i <= streams_.size(); ++i) {
    found |= advance(streams_[(worker + i) % streams_.size()], false);
  }
  return found;
}

bool Schedule::try_all(uint64_t replay, bool& is_finished) {
  bool found = false;
  is_finished = true;
  for (auto& stream : streams_) {
    found |= advance(stream, true);
    is_finished &= stream.state.load(std::memory_order_acquire) >> kReplayShift > replay;
  }
  return found;
}

bool Schedule::is_ready(const Part& part, uint64_t replay) const {
  return std::all_of(part.waits.begin(), part.waits.end(), [&](const Segment::Wait& wait) {
    return streams_[wait.stream].state.load(std::memory_order_acquire) >= state_at(replay, wait.segments);
  });
}

bool Schedule::advance(Stream& stream, bool is_caller) {
  bool found = false;
  uint64_t state = stream.state.load(std::memory_order_acquire);
  while ((state & kRunning) == 0) {
    const uint64_t replay = state >> kReplayShift;
    const size_t next = (state & kPartsMask) / kOnePart;
    const auto& part = stream.parts[next];
    // What is true here stays true until the part is run, which only who changes the state may do.
    if (replay >= begun_.load(std::memory_order_acquire) || (part.on_caller && !is_caller) || !is_ready(part, replay)) {
      break;
    }
    if (!stream.state.compare_exchange_strong(state, state | kRunning, std::memory_order_acq_rel)) {
      continue;
    }
    stream.by_caller = is_caller;
    if (!is_caller) {
      thread_local int threads_here = 0;
      const int wanted = intra_op_.load(std::memory_order_relaxed);
      if (threads_here != wanted) {
        set_intra_op_threads(threads_here = wanted);
      }
      set_float_control(floats_.load(std::memory_order_relaxed));
    }
    execute(part);
    found = true;
    state = next + 1 == stream.parts.size() ? state_at(replay + 1, 0) : state + kOnePart;
    if (is_caller) {
      stream.state.store(state, std::memory_order_release);
      if (part.awaited && is_worth_waking_ && Team::instance().has_sleepers()) {
        Team::instance().wake();
      }
      continue;
    }
    stream.state.store(state);
    if (caller_sleeps_.load()) {
      const std::lock_guard lock(sleep_mutex_);
      done_.notify_one();
    }
  }
  return found;
}

void Schedule::execute(const Part& part) {
  size_t index = 0;
  try {
    for (const auto& call : part.calls) {
      index = call.index;
      if (index > failed_.load(std::memory_order_relaxed)) {
        return;
      }
      call.entry.fn(call.entry.ctx);
    }
  } catch (...) {
    fail(index);
  }
}

// Of several failures the one counts that comes first on the tape, as in eager.
void Schedule::fail(size_t index) {
  const std::lock_guard lock(failure_mutex_);
  if (index >= failed_.load(std::memory_order_relaxed)) {
    return;
  }
  try {
    throw_failure(index);
  } catch (...) {
    failure_ = std::current_exception();
  }
  failed_.store(index, std::memory_order_release);
}

void Schedule::wait_for_workers(uint64_t replay) {
  const auto start = Clock::now();
  bool is_finished = false;
  while (true) {
    for (int i = 0; i < 8; ++i) {
      pause_spinning();
      pause_spinning();
      if (try_all(replay, is_finished) || is_finished) {
        return;
      }
    }
    const auto waited = Clock::now() - start;
    if (waited < kMostSpinning) {
      continue;
    }
    if (waited < kMostYielding) {
      std::this_thread::yield();
      continue;
    }
    std::unique_lock lock(sleep_mutex_);
    caller_sleeps_.store(true);
    lock.unlock();
    // What was done before this was seen is found now, what is done after it wakes.
    const bool found = try_all(replay, is_finished) || is_finished;
    lock.lock();
    if (!found) {
      done_.wait_for(lock, kNap);
    }
    caller_sleeps_.store(false);
    if (found) {
      return;
    }
  }
}

void Schedule::survive_fork() {
  new (&failure_mutex_) std::mutex();
  new (&sleep_mutex_) std::mutex();
  new (&done_) std::condition_variable();
  caller_sleeps_.store(false);
  const uint64_t begun = begun_.load();
  const bool is_run_here = runner_.load() == std::this_thread::get_id();
  for (auto& stream : streams_) {
    const uint64_t state = stream.state.load();
    if (!is_run_here) {
      stream.state.store(state_at(begun, 0));
    } else if ((state & kRunning) != 0 && !stream.by_caller) {
      // Half done by a worker that is not here. Nothing of it can be done again.
      const size_t part = (state & kPartsMask) / kOnePart;
      try {
        TORCH_CHECK(false, "the process was forked while another thread was at it");
      } catch (...) {
        fail(stream.parts[part].calls.front().index);
      }
      stream.state.store(part + 1 == stream.parts.size() ? state_at(begun, 0) : (state & ~kRunning) + kOnePart);
    }
  }
}

}  // namespace airgraph
