#include "schedule.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <bit>
#include <new>
#include <optional>
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

// A worker looks at the first stream once in so many times that it looks for work.
constexpr unsigned kLooksAtFirst = 8;
// And so many times at its own.
constexpr int kLooksAtOwn = 8;

template <typename Value>
void store_if_other(std::atomic<Value>& target, Value value) {
  if (target.load(std::memory_order_relaxed) != value) {
    target.store(value, std::memory_order_relaxed);
  }
}

}  // namespace

Schedule::Schedule(const std::vector<Entry>& entries, const std::vector<Segment>& segments, size_t threads,
                   bool is_worth_waking, bool divides_threads)
    : threads_(threads), is_worth_waking_(is_worth_waking), divides_threads_(divides_threads) {
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
  streams_.front().state.store(at_rest(streams_.front(), 0));
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

// Where a replay begins, and the one before has ended. The first stream is the calling thread's.
uint64_t Schedule::at_rest(const Stream& stream, uint64_t replay) const {
  return state_at(replay, 0) | (&stream == &streams_.front() ? kRunning : 0);
}

void Schedule::run() {
  const uint64_t replay = begun_.load(std::memory_order_relaxed);
  std::optional<IntraOpThreads> share;
  if (divides_threads_) {
    const int intra_op = std::max(1, at::get_num_threads() / static_cast<int>(threads_));
    share.emplace(intra_op);
    store_if_other(intra_op_, intra_op);
  }
  auto& team = Team::instance();
  const bool has_help = team.offer(*this);
  store_if_other(failed_, kNone);
  store_if_other(floats_, float_control());
  store_if_other(runner_, std::this_thread::get_id());
  begun_.store(replay + 1, std::memory_order_release);
  if (has_help && is_worth_waking_ && team.has_sleepers()) {
    team.wake(threads_ - 1);
  }
  auto& first = streams_.front();
  if (may_run(first.parts.front(), replay, true)) {
    go_on(first, replay, 0, true);
  } else {
    first.state.store(state_at(replay, 0), std::memory_order_release);
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
  if (failed_.load(std::memory_order_acquire) != kNone) {
    const std::lock_guard lock(failure_mutex_);
    std::rethrow_exception(std::exchange(failure_, nullptr));
  }
}

bool Schedule::help(size_t worker) {
  if (worker + 1 >= threads_) {
    return false;
  }
  // Between two looks at all else.
  auto& own = streams_[(worker + 1) % streams_.size()];
  for (int i = 0; i < kLooksAtOwn; ++i) {
    if (advance(own, false)) {
      return true;
    }
    pause_spinning();
  }
  thread_local unsigned looks = 0;
  const bool looks_at_first = ++looks % kLooksAtFirst == 0;
  bool found = false;
  // Each worker looks at another stream first; the calling thread has the first.
  for (size_t i = 1; i <= streams_.size(); ++i) {
    const size_t stream = (worker + i) % streams_.size();
    if (stream != 0 || looks_at_first) {
      found |= advance(streams_[stream], false);
    }
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

// What waits for another stream need not ask whether the replay has begun: that line is the calling thread's to write.
bool Schedule::is_ready(const Part& part, uint64_t replay) const {
  if (part.waits.empty()) {
    return replay < begun_.load(std::memory_order_acquire);
  }
  return std::all_of(part.waits.begin(), part.waits.end(), [&](const Segment::Wait& wait) {
    return streams_[wait.stream].state.load(std::memory_order_acquire) >= state_at(replay, wait.segments);
  });
}

bool Schedule::may_run(const Part& part, uint64_t replay, bool is_caller) const {
  return (!part.on_caller || is_caller) && is_ready(part, replay);
}

bool Schedule::advance(Stream& stream, bool is_caller) {
  uint64_t state = stream.state.load(std::memory_order_acquire);
  while ((state & kRunning) == 0) {
    const uint64_t replay = replay_of(state);
    const size_t next = parts_of(state);
    // What is true here stays true until the part is run, which only who changes the state may do.
    if (!may_run(stream.parts[next], replay, is_caller)) {
      return false;
    }
    const uint64_t running = state | kRunning | (is_caller ? 0 : kByWorker);
    if (!stream.state.compare_exchange_strong(state, running, std::memory_order_acq_rel)) {
      continue;
    }
    if (!is_caller) {
      if (divides_threads_) {
        thread_local int threads_here = 0;
        const int wanted = intra_op_.load(std::memory_order_relaxed);
        if (threads_here != wanted) {
          set_intra_op_threads(threads_here = wanted);
        }
      }
      set_float_control(floats_.load(std::memory_order_relaxed));
    }
    go_on(stream, replay, next, is_caller);
    return true;
  }
  return false;
}

void Schedule::go_on(Stream& stream, uint64_t replay, size_t next, bool is_caller) {
  const uint64_t running = kRunning | (is_caller ? 0 : kByWorker);
  while (true) {
    const auto& part = stream.parts[next];
    execute(part);
    if (++next == stream.parts.size()) {
      publish(stream, at_rest(stream, replay + 1), part.awaited, is_caller);
      return;
    }
    if (!may_run(stream.parts[next], replay, is_caller)) {
      publish(stream, state_at(replay, next), part.awaited, is_caller);
      return;
    }
    if (part.awaited) {
      publish(stream, state_at(replay, next) | running, true, is_caller);
    }
  }
}

void Schedule::publish(Stream& stream, uint64_t state, bool is_awaited, bool is_caller) {
  if (is_caller) {
    stream.state.store(state, std::memory_order_release);
    if (is_awaited && is_worth_waking_ && Team::instance().has_sleepers()) {
      Team::instance().wake(threads_ - 1);
    }
    return;
  }
  stream.state.store(state);
  if (caller_sleeps_.load()) {
    const std::lock_guard lock(sleep_mutex_);
    caller_sleeps_.store(false);
    done_.notify_one();
  }
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
      stream.state.store(at_rest(stream, begun));
    } else if ((state & kByWorker) != 0) {
      // Half done by a worker that is not here. Nothing of it can be done again.
      const size_t part = parts_of(state);
      try {
        TORCH_CHECK(false, "the process was forked while another thread was at it");
      } catch (...) {
        fail(stream.parts[part].calls.front().index);
      }
      stream.state.store(part + 1 == stream.parts.size() ? at_rest(stream, begun) : state_at(begun - 1, part + 1));
    }
  }
}

}  // namespace airgraph
