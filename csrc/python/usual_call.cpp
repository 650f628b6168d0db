#include "usual_call.h"

#include <atomic>

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

void count_one_more(PyObject* tally) {
  PyObject* const count = PyList_GET_SIZE(tally) == 1 ? PyList_GET_ITEM(tally, 0) : nullptr;
  if (count == nullptr || !PyLong_Check(count)) {
    throw py::type_error("expected a tally of one number");
  }
  PyObject* const more = PyLong_FromLongLong(PyLong_AsLongLong(count) + 1);
  if (more == nullptr || PyList_SetItem(tally, 0, more) != 0) {
    throw py::error_already_set();
  }
}

std::atomic<uint64_t> calls_made{0};

}  // namespace

UsualCall::UsualCall(py::object launch, std::vector<std::pair<Py_ssize_t, py::object>> numbers, py::list tally,
                     py::object with_care, py::object is_capturing, py::object settings, py::object captured_settings,
                     py::object finish)
    : number_(++calls_made),
      launch_(std::move(launch)),
      tally_(std::move(tally)),
      with_care_(std::move(with_care)),
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
  if (PySet_GET_SIZE(with_care_.ptr()) != 0) {
    return false;
  }
  for (const auto& [index, value] : numbers_) {
    if (!is_same_number(PySequence_Fast_GET_ITEM(args.ptr(), index), value.ptr())) {
      return false;
    }
  }
  if (!is_capturing_.is_none()) {
    const auto answer = py::reinterpret_steal<py::object>(PyObject_CallNoArgs(is_capturing_.ptr()));
    if (!answer) {
      throw py::error_already_set();
    }
    if (answer.is(py::handle(Py_True))) {
      return false;
    }
  }
  return settings_.is_none() || settings_().equal(captured_settings_);
}

py::object UsualCall::operator()(py::handle args, KeptArguments* kept) const {
  if (!is_as_usual(args)) {
    return py::none();
  }
  Look look;
  if (kept != nullptr) {
    look = [this, kept](const Inputs& inputs, const Arguments& given) { return kept->look(number_, inputs, given); };
  }
  auto outcome = listed_ != nullptr ? run(*listed_, args, false, look) : run(*bound_, args, false, look);
  if (std::holds_alternative<Problem>(outcome)) {
    return py::none();
  }
  count_one_more(tally_.ptr());
  auto made = to_python(std::move(outcome));
  return finish_.is_none() ? made : finish_(made, args);
}

py::object UsualCall::called(py::handle args) {
  PyObject* given = nullptr;
  if (PyArg_UnpackTuple(args.ptr(), "UsualCall", 1, 1, &given) == 0) {
    throw py::error_already_set();
  }
  if (!PyList_Check(given) && !PyTuple_Check(given)) {
    throw py::type_error("expected a list or a tuple of arguments");
  }
  return (*this)(given);
}

}  // namespace airgraph
