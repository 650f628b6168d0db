#include "settled.h"

#include <utility>

#include "../engine/settings.h"
#include "../internals/function_modes.h"
#include "../internals/modes.h"

namespace airgraph {
namespace {

namespace py = pybind11;

PyObject* name_of_device() {
  static PyObject* const name = PyUnicode_InternFromString("CURRENT_DEVICE");
  return name;
}

// Whether a mode is the other, or both are of one class, `of_devices`, and of one device: each `with torch.device(...)`
// puts on another. False too where that cannot be asked.
bool is_alike(PyObject* mode, PyObject* other, PyObject* of_devices) {
  static PyObject* const name = PyUnicode_InternFromString("device");
  if (mode == other) {
    return true;
  }
  auto* const type = reinterpret_cast<PyObject*>(Py_TYPE(mode));
  if (type != of_devices || Py_TYPE(mode) != Py_TYPE(other)) {
    return false;
  }
  const auto device = py::reinterpret_steal<py::object>(PyObject_GetAttr(mode, name));
  const auto expected = py::reinterpret_steal<py::object>(device ? PyObject_GetAttr(other, name) : nullptr);
  const int answer = expected ? PyObject_RichCompareBool(device.ptr(), expected.ptr(), Py_EQ) : -1;
  PyErr_Clear();
  return answer == 1;
}

}  // namespace

Settled::Settled(py::dict devices) : devices_(std::move(devices)) {}

Settled::State Settled::now() const {
  PyObject* const device = PyDict_GetItemWithError(devices_.ptr(), name_of_device());
  if (device == nullptr) {
    PyErr_Clear();
  }
  return {settings(), autocast_settings(), function_modes(), device};
}

void Settled::settle() {
  settled_ = now();
  device_ = py::reinterpret_borrow<py::object>(settled_.device);
  const auto count = function_mode_count();
  std::vector<py::object> modes;
  modes.reserve(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    modes.push_back(py::reinterpret_borrow<py::object>(function_mode(i)));
  }
  // Those of before may run code of the user's where they end.
  modes_.swap(modes);
}

bool Settled::unchanged() const {
  if (are_operators_seen() || now() != settled_) {
    return false;
  }
  if (modes_.empty()) {
    return true;
  }
  PyObject* const of_devices = PyDict_GetItemString(devices_.ptr(), "DeviceContext");
  // As many as there were, which is a part of the state.
  for (size_t i = 0; i < modes_.size(); ++i) {
    if (!is_alike(function_mode(static_cast<int64_t>(i)), modes_[i].ptr(), of_devices)) {
      return false;
    }
  }
  return true;
}

}  // namespace airgraph
