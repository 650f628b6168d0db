// The first look of a cached call, and mostly the only one.
#pragma once

#include <pybind11/pybind11.h>

#include <array>

#include "call_reader.h"
#include "settled.h"
#include "watch.h"

namespace airgraph {

// One look at all that a call depends on.
class Gate {
 public:
  Gate(pybind11::object watch, pybind11::object settled, pybind11::object reader);

  // The graph's arguments; None where a condition on the call does not hold; False where something else has changed.
  pybind11::object read(const pybind11::tuple& values);

  // Whether something has changed that does not come with the call.
  bool has_changed();
  // Null once it is cleared.
  CallReader* reader() const { return watch_ == nullptr ? nullptr : reader_; }

  // For Python's garbage collector.
  int traverse(visitproc visit, void* arg) const;
  void clear();

 private:
  Watch* watch_;
  const Settled* settled_;
  CallReader* reader_;
  std::array<pybind11::object, 3> held_;
};

}  // namespace airgraph
