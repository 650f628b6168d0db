#include "settled.h"

#include <ATen/autocast_mode.h>

#include <array>
#include <utility>

#include "../engine/settings.h"
#include "../internals/function_modes.h"
#include "../internals/modes.h"

namespace airgraph {
namespace {

namespace py = pybind11;

constexpr std::array kDevices = {at::kCPU, at::kCUDA, at::kPrivateUse1};

uint64_t autocast() {
  auto packed = static_cast<uint64_t>(at::autocast::is_autocast_cache_enabled());
  for (const auto device : kDevices) {
    packed = packed << 9 | static_cast<uint64_t>(at::autocast::is_autocast_enabled(device)) << 8 |
             static_cast<uint64_t>(at::autocast::get_autocast_dtype(device));
  }
  return packed;
}

PyObject* name_of_device() {
  static PyObject* const name = PyUnicode_InternFromString("CURRENT_DEVICE");
  return name;
}

}  // namespace

Settled::Settled(py::dict devices) : devices_(std::move(devices)) {}

Settled::State Settled::now() const {
  PyObject* const device = PyDict_GetItemWithError(devices_.ptr(), name_of_device());
  if (device == nullptr) {
    PyErr_Clear();
  }
  return {settings(), autocast(), function_modes(), device};
}

void Settled::settle() {
  settled_ = now();
  device_ = py::reinterpret_borrow<py::object>(settled_.device);
  modes_.clear();
  for (int64_t i = 0; i < function_mode_count(); ++i) {
    modes_.push_back(py::reinterpret_borrow<py::object>(function_mode(i)));
  }
}

bool Settled::unchanged() const {
  if (are_operators_seen() || now() != settled_) {
    return false;
  }
  // As many as there were, which is a part of the state.
  for (size_t i = 0; i < modes_.size(); ++i) {
    if (function_mode(static_cast<int64_t>(i)) != modes_[i].ptr()) {
      return false;
    }
  }
  return true;
}

}  // namespace airgraph
