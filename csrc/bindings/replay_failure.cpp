#include "replay_failure.h"

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

namespace airgraph {

namespace py = pybind11;

void raise_failure(const ReplayFailure& error, PyObject* type) {
  py::object cause;
  const auto take_cause = [&cause] {
    // Set by now. True if it is no mere failure.
    if (PyErr_ExceptionMatches(PyExc_Exception) == 0) {
      return true;
    }
    PyObject *kind = nullptr, *value = nullptr, *trace = nullptr;
    PyErr_Fetch(&kind, &value, &trace);
    PyErr_NormalizeException(&kind, &value, &trace);
    if (trace != nullptr) {
      PyException_SetTraceback(value, trace);
    }
    cause = py::reinterpret_steal<py::object>(value);
    Py_XDECREF(kind);
    Py_XDECREF(trace);
    return false;
  };
  try {
    std::rethrow_if_nested(error);
  } catch (py::error_already_set& raised) {
    raised.restore();
    if (take_cause()) {
      return;
    }
  } catch (python_error& raised) {
    raised.restore();
    if (take_cause()) {
      return;
    }
  } catch (const std::exception&) {
    // Its message is in `error`.
  }
  auto failure = py::reinterpret_borrow<py::object>(type)(error.index, error.what());
  if (cause) {
    PyException_SetCause(failure.ptr(), cause.release().ptr());
  }
  PyErr_SetObject(type, failure.ptr());
}

}  // namespace airgraph
