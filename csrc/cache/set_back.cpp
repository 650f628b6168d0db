#include "set_back.h"

#include <utility>

namespace airgraph {

namespace py = pybind11;

void SetBack::keep(const py::object& owner, const py::str& name) {
  auto value = py::reinterpret_steal<py::object>(PyObject_GenericGetAttr(owner.ptr(), name.ptr()));
  if (!value) {
    if (PyErr_ExceptionMatches(PyExc_AttributeError) == 0) {
      throw py::error_already_set();
    }
    PyErr_Clear();
  }
  kept_.push_back({owner, name, std::move(value)});
}

void SetBack::set_back() noexcept {
  const auto kept = std::move(kept_);
  kept_.clear();
  const py::error_scope raised;
  for (auto each = kept.rbegin(); each != kept.rend(); ++each) {
    // One that was not there is deleted.
    if (PyObject_GenericSetAttr(each->owner.ptr(), each->name.ptr(), each->value.ptr()) != 0) {
      PyErr_Clear();
    }
  }
}

}  // namespace airgraph
