// The replay lock of a pool, held by code that runs in Python.
#pragma once

#include <torch/csrc/utils/pybind.h>

#include <memory>
#include <optional>
#include <string>

#include "../engine/replay_lock.h"
#include "thread_state.h"

namespace airgraph {

// The right to run the graphs of a pool, for as long as it lives. Needs the GIL, which it lets go while it waits.
// Raises ReplayError where the replay lock cannot be held; `what` is to be done with it.
class HeldReplayLock {
 public:
  HeldReplayLock(std::shared_ptr<ReplayLock> replay_lock, const std::string& what);
  HeldReplayLock(const HeldReplayLock&) = delete;
  HeldReplayLock& operator=(const HeldReplayLock&) = delete;
  ~HeldReplayLock() { lock_->give_back(); }

 private:
  std::shared_ptr<ReplayLock> lock_;
};

// `with replay_lock.holding("reset of graph_1"):`. Nothing of Python's runs between the taking and the giving back, so
// neither does a signal handler. Where the block ends by an exception, which may have fallen between the halves of a
// Python context manager, all of the thread's state is as it was before: modes, autograd, autocast.
class ReplayLockContext {
 public:
  ReplayLockContext(std::shared_ptr<ReplayLock> of, std::string purpose, bool may_wait)
      : lock_(std::move(of)), what_(std::move(purpose)), waits_(may_wait) {}

  // Whether it holds the replay lock: always, where it waits.
  bool enter();
  void exit(const pybind11::object& raised);

 private:
  std::shared_ptr<ReplayLock> lock_;
  std::string what_;
  bool waits_;
  std::optional<HeldReplayLock> held_;
  std::optional<ThreadState> state_;
};

}  // namespace airgraph
