#include "schedule.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <bit>
#include <new>
#include <utility>

#include "failure.h"
#include "spin.h"
#include "team.h"

namespace airgraph {
namespace {

using Clock = std::chrono::steady_clock;

// A stream's state: the replay, how many of its parts are done in that, and whether the next is being run, and by whom.
// As few bits as the parts need: the replays must not come to their end.
constexpr uint64_t kRunning = 1;
constexpr uint64_t kByWorker = 2;
constexpr int kPartsShift = 2;

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
  size_t most = 0;
  for (const auto& stream : streams_) {
    TORCH_CHECK(!stream.parts.empty(), "a stream without segments");
    most = std::max(most, stream.parts.size());
  }
  replay_shift_ = kPartsShift + static_cast<int>(std::bit_width(most));
  Team::instance().join(*this);
}

Schedule::~Schedule() { Team::instance().leave(*this); }

uint64_t Schedule::state_at(uint64_t replay, size_t parts) const {
  return (replay << replay_shift_) | (static_cast<uint64_t>(parts) << kPartsShift);
}

uint64_t Schedule::replay_of(uint64_t state) const { return state >> replay_shift_; }

size_t Schedule::parts_of(uint64_t state) const {
  return (state & ((uint64_t{1} << replay_shift_) - 1)) >> kPartsShift;
}

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
  const bool has_help = team.offer(*this);
  if (has_help && is_worth_waking_ && team.has_sleepers()) {
    team.wake(threads_ - 1);
  }
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
    is_finished &= replay_of(stream.state.load(std::memory_order_acquire)) > replay;
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
    const uint64_t replay = replay_of(state);
    const size_t next = parts_of(state);
    const auto& part = stream.parts[next];
    // What is true here stays true until the part is run, which only who changes the state may do.
    if (replay >= begun_.load(std::memory_order_acquire) || (part.on_caller && !is_caller) || !is_ready(part, replay)) {
      break;
    }
    const uint64_t running = state | kRunning | (is_caller ? 0 : kByWorker);
    if (!stream.state.compare_exchange_strong(state, running, std::memory_order_acq_rel)) {
      continue;
    }
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
    state = next + 1 == stream.parts.size() ? state_at(replay + 1, 0) : state_at(replay, next + 1);
    if (is_caller) {
      stream.state.store(state, std::memory_order_release);
      if (part.awaited && is_worth_waking_ && Team::instance().has_sleepers()) {
        Team::instance().wake(threads_ - 1);
      }
      continue;
    }
    stream.state.store(state);
    if (caller_sleeps_.load()) {
      const std::lock_guard lock(sleep_mutex_);
      caller_sleeps_.store(false);
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
    // A worker that stores its state after this sees it and wakes this thread; what was stored before is found now.
    caller_sleeps_.store(true);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (try_all(replay, is_finished) || is_finished) {
      caller_sleeps_.store(false);
      return;
    }
    std::unique_lock lock(sleep_mutex_);
    done_.wait_for(lock, kNap, [&] { return !caller_sleeps_.load(); });
    caller_sleeps_.store(false);
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
    } else if ((state & kByWorker) != 0) {
      // Half done by a worker that is not here. Nothing of it can be done again.
      const size_t part = parts_of(state);
      try {
        TORCH_CHECK(false, "the process was forked while another thread was at it");
      } catch (...) {
        fail(stream.parts[part].calls.front().index);
      }
      stream.state.store(part + 1 == stream.parts.size() ? state_at(begun, 0) : state_at(begun - 1, part + 1));
    }
  }
}

}  // namespace airgraph
