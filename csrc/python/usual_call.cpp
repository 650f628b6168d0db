#include "usual_call.h"

namespace airgraph {
namespace {

namespace py = pybind11;

// Equal and of one type; 1, 1.0 and True differ.
bool is_same_number(PyObject* given, PyObject* expected) {
  if (Py_TYPE(given) != Py_TYPE(expected)) {
    return false;
  }
  const int answer = PyObject_RichCompareBool(given, expected, Py_EQ);
  if (answer < 0) {
    throw py::error_already_set();
  }
  return answer == 1;
}

void count_one_more(const py::object& record) {
  static PyObject* const name = PyUnicode_InternFromString("replays");
  static PyObject* const one = PyLong_FromLong(1);
  const auto count = py::reinterpret_steal<py::object>(PyObject_GetAttr(record.ptr(), name));
  const auto more = py::reinterpret_steal<py::object>(count ? PyNumber_Add(count.ptr(), one) : nullptr);
  if (!more || PyObject_SetAttr(record.ptr(), name, more.ptr()) != 0) {
    throw py::error_already_set();
  }
}

}  // namespace

UsualCall::UsualCall(py::object launch, std::vector<std::pair<Py_ssize_t, py::object>> numbers, py::object record,
                     py::object warming, py::object is_capturing, py::object settings, py::object captured_settings,
                     py::object finish)
    : launch_(std::move(launch)),
      record_(std::move(record)),
      warming_(std::move(warming)),
      is_capturing_(std::move(is_capturing)),
      settings_(std::move(settings)),
      captured_settings_(std::move(captured_settings)),
      finish_(std::move(finish)),
      numbers_(std::move(numbers)) {
  if (py::isinstance<Launch>(launch_)) {
    listed_ = launch_.cast<Launch*>();
  } else {
    bound_ = launch_.cast<BoundLaunch*>();
  }
}

bool UsualCall::is_as_usual(py::handle args) const {
  if (PySet_GET_SIZE(warming_.ptr()) != 0) {
    return false;
  }
  for (const auto& [index, value] : numbers_) {
    if (!is_same_number(PySequence_Fast_GET_ITEM(args.ptr(), index), value.ptr())) {
      return false;
    }
  }
  if (!is_capturing_.is_none() && is_capturing_().is(py::handle(Py_True))) {
    return false;
  }
  return settings_.is_none() || settings_().equal(captured_settings_);
}

py::object UsualCall::operator()(py::handle args) const {
  if (!is_as_usual(args)) {
    return py::none();
  }
  auto outcome = listed_ != nullptr ? run(*listed_, args, false) : run(*bound_, args, false);
  if (std::holds_alternative<Problem>(outcome)) {
    return py::none();
  }
  count_one_more(record_);
  auto made = to_python(std::move(outcome));
  return finish_.is_none() ? made : finish_(made, args);
}

}  // namespace airgraph
