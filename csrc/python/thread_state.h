// What torch keeps for a thread: modes, autograd, autocast, the keys that the dispatcher adds and leaves out.
#pragma once

#include <ATen/ThreadLocalState.h>
#include <torch/csrc/utils/pybind.h>

namespace airgraph {

// The state at the time it is made, to be put back where an exception may have fallen between the halves of a context
// manager.
class ThreadState {
 public:
  ThreadState();

  // raised: the exception that leaves the block, or None. Frames that it keeps may hold guards of torch, which put
  // back a state of their own when they die. So the block's frames of installed packages and of the standard library
  // are cleared first; those of other code keep what a debugger shows.
  void restore(const pybind11::object& raised) const;

 private:
  at::ThreadLocalState state_;
  // What is handled around the block: its frames are not the block's.
  pybind11::object outer_;
};

}  // namespace airgraph
