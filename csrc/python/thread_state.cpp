#include "thread_state.h"

#include <algorithm>
#include <array>
#include <string>

namespace airgraph {
namespace {

namespace py = pybind11;

// Of exceptions that were raised while others were handled.
constexpr int kMostInARow = 100;

py::object handled_exception() {
  PyObject* kind = nullptr;
  PyObject* value = nullptr;
  PyObject* trace = nullptr;
  PyErr_GetExcInfo(&kind, &value, &trace);
  Py_XDECREF(kind);
  Py_XDECREF(trace);
  return value != nullptr ? py::reinterpret_steal<py::object>(value) : py::none();
}

// Where torch and what is installed beside it lies, and the standard library.
const std::array<std::string, 2>& installed() {
  static const auto* folders = [] {
    const auto path = py::module_::import("os").attr("path");
    const auto folder = [&path](const py::object& file, int up) {
      py::object name = file;
      for (int i = 0; i < up; ++i) {
        name = path.attr("dirname")(name);
      }
      return name.cast<std::string>() + "/";
    };
    return new std::array<std::string, 2>{folder(py::module_::import("torch").attr("__file__"), 2),
                                          folder(py::module_::import("os").attr("__file__"), 1)};
  }();
  return *folders;
}

bool is_installed(const py::object& frame) {
  const auto file = frame.attr("f_code").attr("co_filename").cast<std::string>();
  const auto& folders = installed();
  return std::any_of(folders.begin(), folders.end(),
                     [&file](const std::string& folder) { return file.compare(0, folder.size(), folder) == 0; });
}

// A frame that still runs refuses, and keeps what it has.
void clear_frames_of(const py::object& exception) {
  py::object trace = exception.attr("__traceback__");
  while (!trace.is_none()) {
    const py::object frame = trace.attr("tb_frame");
    if (is_installed(frame)) {
      try {
        frame.attr("clear")();
      } catch (const py::error_already_set& error) {
        if (!error.matches(PyExc_RuntimeError)) {
          throw;
        }
      }
    }
    trace = trace.attr("tb_next");
  }
}

}  // namespace

ThreadState::ThreadState() : outer_(handled_exception()) {}

void ThreadState::restore(const py::object& raised) const {
  py::object exception = raised;
  for (int i = 0; i < kMostInARow && !exception.is_none() && !exception.is(outer_); ++i) {
    clear_frames_of(exception);
    exception = exception.attr("__context__");
  }
  at::ThreadLocalState::setThreadLocalState(state_);
}

}  // namespace airgraph
