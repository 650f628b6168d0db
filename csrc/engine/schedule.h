// Replays a tape of several streams: which calls run beside which, on whatever threads are there.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <limits>
#include <mutex>
#include <thread>
#include <vector>

#include "helped.h"
#include "step.h"
#include "thread_share.h"

namespace airgraph {

// Calls of one stream that follow one another; it begins when so many segments of other streams are done.
struct Segment {
  struct Wait {
    size_t stream;
    size_t segments;
  };
  size_t stream = 0;
  std::vector<size_t> calls;  // positions on the tape
  std::vector<Wait> waits;
  bool on_caller = false;  // only on the thread that replays
};

// The segments of a tape, in the order of their streams. Any thread may run the next segment of any stream once its
// waits are over, so the calling thread alone comes to the end; workers only make it sooner. What counts is one number
// a stream: in which replay it is, how many of its segments are done, and whether the next is being run. No number
// comes again to say that a segment may be begun, so a worker that slept through a replay does no harm. Who runs a
// stream goes on while the next segment is ready.
//
// What makes a replay wait is memory that two cores write by turns, 70 ns each time. Between replays the first stream
// is in the calling thread's hands already, and workers look at it seldom.
class Schedule final : public Helped {
 public:
  // threads: that run it at most, the calling one included. is_worth_waking: whether workers that sleep are to be
  // woken, rather than left asleep unless replays follow one another closely. divides_threads: whether an entry may ask
  // ATen or MKL for threads, which streams share then.
  Schedule(const std::vector<Entry>& entries, const std::vector<Segment>& segments, size_t threads,
           bool is_worth_waking, bool divides_threads);
  ~Schedule() override;

  // Runs all segments, one replay at a time. Throws ReplayFailure of the first call, in the order of the tape, that
  // fails; those before it are done then, some of those after it may be.
  void run();

  bool help(size_t worker) override;
  void survive_fork() override;
  size_t threads() const override { return threads_; }

 private:
  struct Call {
    Entry entry;
    size_t index;  // on the tape
  };
  struct Part {
    std::vector<Call> calls;
    std::vector<Segment::Wait> waits;
    bool on_caller;
    bool awaited;  // by another stream
  };
  struct alignas(64) Stream {
    std::atomic<uint64_t> state{0};
    std::vector<Part> parts;
  };
  static constexpr size_t kNone = std::numeric_limits<size_t>::max();

  uint64_t state_at(uint64_t replay, size_t parts) const;
  uint64_t replay_of(uint64_t state) const;
  size_t parts_of(uint64_t state) const;
  bool advance(Stream& stream, bool is_caller);
  // Runs the stream's next segment, which is ready, and those after it that are. Who calls it holds the stream, and
  // does not afterwards.
  void go_on(Stream& stream, uint64_t replay, size_t next, bool is_caller);
  void publish(Stream& stream, uint64_t state, bool is_awaited, bool is_caller);
  bool may_run(const Part& part, uint64_t replay, bool is_caller) const;
  uint64_t at_rest(const Stream& stream, uint64_t replay) const;
  bool is_ready(const Part& part, uint64_t replay) const;
  void execute(const Part& part);
  void fail(size_t index);
  void wait_for_workers(uint64_t replay);
  bool try_all(uint64_t replay, bool& is_finished);

  const size_t threads_;
  const bool is_worth_waking_;
  const bool divides_threads_;
  int replay_shift_ = 0;  // of a stream's state
  std::vector<Stream> streams_;

  // What the calling thread tells the workers lies together: one line to fetch. Of these one is written at each replay.
  alignas(64) std::atomic<uint64_t> begun_{0};  // replays
  std::atomic<size_t> failed_{kNone};
  std::atomic<uint32_t> floats_{0};
  std::atomic<int> intra_op_{1};
  std::atomic<std::thread::id> runner_{};  // of the latest replay

  alignas(64) std::mutex failure_mutex_;
  std::exception_ptr failure_;

  alignas(64) std::atomic<bool> caller_sleeps_{false};
  std::mutex sleep_mutex_;
  std::condition_variable done_;
};

}  // namespace airgraph
