// The native tape: a flat list of prepared kernel calls, replayed without Python.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "step.h"

namespace airgraph {

// A kernel threw; `index` is the call's position on the tape. What it threw is nested.
class ReplayFailure : public std::runtime_error {
 public:
  ReplayFailure(size_t index, const std::string& what) : std::runtime_error(what), index(index) {}
  size_t index;
};

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
};

class Tape {
 public:
  // Prepares the call in the first tier that can serve it. Throws c10::Error if none can.
  Tier append(RecordedCall call);

  // Runs all calls in order. Throws ReplayFailure; the tape stays usable.
  void replay();

  // Replays `rounds` times; the median nanoseconds of each call, with the clock's own cost (some 20 ns) in them.
  std::vector<double> profile(size_t rounds);

  size_t size() const { return entries_.size(); }

 private:
  std::vector<Entry> entries_;
  std::vector<std::unique_ptr<Step>> steps_;
};

}  // namespace airgraph
