// Whether torch's settings, which decide what a function is traced to, are as they were.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <vector>

namespace airgraph {

// Compares in a few loads what takes microseconds from Python. Needs the GIL.
class Settled {
 public:
  // devices: the namespace in which `CURRENT_DEVICE` is the default device and `DeviceContext` the class of the modes
  // of `with torch.device(...)`.
  explicit Settled(pybind11::dict devices);

  // What is set now is right.
  void settle();
  // Since then. False before, and under dispatch modes and transforms, which may do anything.
  bool unchanged() const;

 private:
  struct State {
    uint64_t settings = 0, autocast = 0;
    int64_t function_modes = -1;
    PyObject* device = nullptr;

    bool operator==(const State&) const = default;
  };

  State now() const;

  pybind11::dict devices_;
  State settled_;
  // What is compared with. A device of a `with` block is nowhere but among the function modes.
  pybind11::object device_;
  std::vector<pybind11::object> modes_;
};

}  // namespace airgraph
