// The usual call of a callable: by the capture that served the last one, with nothing to decide.
#pragma once

#include <torch/csrc/utils/pybind.h>

#include <utility>
#include <vector>

#include "kept_arguments.h"
#include "launches.h"

namespace airgraph {

class UsualCall {
 public:
  // launch: a Launch or a BoundLaunch. numbers: by index, those that the arguments must be, of their types. tally: a
  // list of one number, which is counted up. with_care: a set; while anything is in it, no call is usual. is_capturing:
  // whether the current stream is being captured by others; None: never, or the launch asks itself. settings: of the
  // device, now, which must be those of the capture; None: it has none. finish: makes what the caller gets of what the
  // launch made and of the arguments; None: that itself.
  UsualCall(pybind11::object launch, std::vector<std::pair<Py_ssize_t, pybind11::object>> numbers, pybind11::list tally,
            pybind11::object with_care, pybind11::object is_capturing, pybind11::object settings,
            pybind11::object captured_settings, pybind11::object finish);

  // The outputs of a call with these arguments, a list or a tuple; None where something is not as usual, and then
  // nothing was done. kept: those among them that do not come with the call; null: all are compared one by one.
  pybind11::object operator()(pybind11::handle args, KeptArguments* kept = nullptr) const;

  // The same from Python: of a tuple of one, the arguments.
  pybind11::object called(pybind11::handle args);

 private:
  bool is_as_usual(pybind11::handle args) const;

  // No other call has it, now or later.
  const uint64_t number_;
  pybind11::object launch_, tally_, with_care_, is_capturing_, settings_, captured_settings_, finish_;
  // One of them is null.
  Launch* listed_ = nullptr;
  BoundLaunch* bound_ = nullptr;
  std::vector<std::pair<Py_ssize_t, pybind11::object>> numbers_;
};

}  // namespace airgraph
