// The native tape: a flat list of prepared kernel calls, replayed without Python.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <memory>
#include <optional>
#include <vector>

#include "failure.h"
#include "look_ahead.h"
#include "pace.h"
#include "parallel_loop.h"
#include "schedule.h"
#include "step.h"

namespace airgraph {

class PackedWeight;

// One operator call as recorded. `outs` are the slots of its fresh results, over fixed addresses.
struct RecordedCall {
  c10::OperatorHandle op;
  torch::jit::Stack args;
  std::vector<at::Tensor> outs;
  // For every result of the schema: whether a slot of `outs` takes it (else it aliases an argument).
  std::vector<bool> fresh;
  // For every slot of `outs`: whether anything reads it. An unread one may have been recorded with a wrong shape.
  std::vector<bool> needed;
  std::optional<c10::OperatorHandle> out_variant;
  // Arguments with lazy conjugation or negation need the dispatcher to resolve them.
  bool redispatch = false;
  // Equal to eager's result bit for bit: no kernel of our own.
  bool exact = false;
  // Of a product of many rows: its matrix in panels. Null: it is read as it lies.
  std::shared_ptr<PackedWeight> packed;
};

// When a call was run, by a clock that only goes on, and on which thread: 0 is the one that replays.
struct Moment {
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  size_t thread = 0;
};

class Tape {
 public:
  // Prepares the call in the first tier that can serve it. Throws c10::Error if none can.
  Tier append(RecordedCall call);

  // From now on replays run streams beside one another. The segments hold each call of the tape once; in the order of
  // the tape none waits for a later one.
  void run_beside(const std::vector<Segment>& segments, size_t threads, bool is_worth_waking);

  // Runs all calls, in order where `run_beside` says nothing else. Throws ReplayFailure; the tape stays usable.
  void replay();

  // Whether a replay runs kernels of this thread alone, which wait for nobody and call nothing of the user's, and took
  // so little time when it was last measured that no other thread would gain by running meanwhile. Guarded by the
  // replay lock.
  bool is_quick() const {
    return pace_.is_quick() && !calls_others_ && schedule_ == nullptr && loop_ == nullptr && !is_divided_by_aten_;
  }

  // Replays so many times and tells of the last, in the order of the tape, when each call was run, and where.
  std::vector<Moment> timeline(size_t rounds);

  size_t size() const { return entries_.size(); }
  // Calls that an earlier one runs with it, as one loop.
  size_t taken() const { return taken_.size(); }
  // Loops of kernels so far whose parts other threads might take.
  size_t shared_loops() const { return loop_ == nullptr ? 0 : loop_->shared(); }
  // Whether ATen divides a call among threads of its own: then loops are shared among these.
  bool is_divided_by_aten() const { return is_divided_by_aten_; }

 private:
  // An entry that an earlier one runs, and its own function.
  struct Taken {
    size_t index;
    StepFn fn;
  };

  // Lets the last entry be run by an earlier one, if it can.
  void take_last();
  // From now on each call is run by its own entry.
  void let_go();

  std::vector<Entry> entries_;
  std::vector<std::unique_ptr<Step>> steps_;
  SharedStep* sharing_ = nullptr;  // that took the last entry, or may
  std::vector<Taken> taken_;
  LookAhead ahead_;
  std::vector<Segment> segments_;
  std::unique_ptr<Schedule> schedule_;  // gone first: it holds on to the steps
  bool is_divided_by_aten_ = false;     // a call
  bool may_ask_for_threads_ = false;    // a call, of ATen or a library below it
  bool calls_others_ = false;           // by the dispatcher: whatever is registered there
  Pace pace_;
  std::unique_ptr<ParallelLoop> loop_;  // where a kernel has parts and there is another thread
};

}  // namespace airgraph
