#include "held_replay_lock.h"

#include <chrono>
#include <utility>

#include "without_gil.h"

namespace airgraph {
namespace {

namespace py = pybind11;

constexpr std::chrono::milliseconds kLookForSignals(50);

[[noreturn]] void refuse(const std::string& message) {
  const auto type = py::module_::import("airgraph.errors").attr("ReplayError");
  PyErr_SetObject(type.ptr(), py::str(message).ptr());
  throw py::error_already_set();
}

}  // namespace

HeldReplayLock::HeldReplayLock(std::shared_ptr<ReplayLock> replay_lock, const std::string& what)
    : lock_(std::move(replay_lock)) {
  auto answer = lock_->take();
  while (answer == ReplayLock::Answer::busy) {
    {
      const WithoutGil released;
      answer = lock_->wait(kLookForSignals);
    }
    if (answer == ReplayLock::Answer::busy && PyErr_CheckSignals() != 0) {
      throw py::error_already_set();
    }
  }
  if (answer == ReplayLock::Answer::nested) {
    refuse(what +
           " was called by an operator of a graph that is running, in the same memory pool: a graph cannot run inside "
           "itself or its neighbours. Call the uncompiled function there, or use another pool.");
  }
  if (answer == ReplayLock::Answer::deadlock) {
    refuse(what +
           " would wait for ever: it was called within a replay, for whose pool the thread waits that it would wait "
           "for. Call graphs of two pools from one another in one order only.");
  }
}

bool ReplayLockContext::enter() {
  if (!waits_ && lock_->is_taken()) {
    return false;
  }
  held_.emplace(lock_, what_);
  state_.emplace();
  return true;
}

void ReplayLockContext::exit(const py::object& raised) {
  if (held_ && !raised.is_none() && state_) {
    state_->restore(raised);
  }
  held_.reset();
}

}  // namespace airgraph
