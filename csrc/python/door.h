// The usual call of a cached function, from conditions to result, with as little Python in between as can be.
#pragma once

#include <torch/csrc/utils/pybind.h>

#include <memory>

#include "../cache/gate.h"
#include "kept_arguments.h"
#include "usual_call.h"

namespace airgraph {

class Door {
 public:
  // gate: of the cached graph. callable: what replays it, whose `usual` is the capture that served last, or None.
  // build: makes the result of the graph's outputs and the values, or is the number of the output that is the result.
  // miss: what stands for no result. follows: whose count it goes on with, or null.
  Door(pybind11::object gate, pybind11::object callable, pybind11::object build, pybind11::object miss,
       const Door* follows);

  // The function's result for these values of its parameters, a tuple; `miss` where something is not as usual, and then
  // nothing was done. Raises what a call of the callable does.
  pybind11::object operator()(pybind11::handle values);

  // The same from Python: of a tuple of one, the values.
  pybind11::object called(pybind11::handle args);

  bool is_miss(const pybind11::object& result) const { return result.is(miss_); }

  // How many calls it and those that it follows have served: they share the count, as calls of those may be on their
  // way.
  size_t calls() const { return *calls_; }

  // For Python's garbage collector.
  int traverse(visitproc visit, void* arg) const;
  void clear();

 private:
  class List;

  // The graph's outputs, or None.
  pybind11::object replay(const pybind11::object& usual, pybind11::handle values);

  Gate* gate_;
  KeptArguments kept_;
  // A list of arguments for one call after another, and whether one has it.
  pybind11::object list_;
  bool is_list_taken_ = false;
  const std::shared_ptr<size_t> calls_;
  // Misses since it served one, and calls that were not tried.
  size_t misses_ = 0, passed_by_ = 0;
  pybind11::object held_, callable_, build_, miss_;
  // The number of the output that is the result; -1: it is built.
  const Py_ssize_t sole_;
};

}  // namespace airgraph
