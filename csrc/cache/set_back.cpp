#include "set_back.h"

#include <utility>

namespace airgraph {

namespace py = pybind11;

namespace {

// Empty where there is none.
py::object attribute(py::handle owner, py::handle name) {
  auto value = py::reinterpret_steal<py::object>(PyObject_GenericGetAttr(owner.ptr(), name.ptr()));
  if (!value) {
    if (PyErr_ExceptionMatches(PyExc_AttributeError) == 0) {
      throw py::error_already_set();
    }
    PyErr_Clear();
  }
  return value;
}

// Whether a class keeps the attribute in its objects themselves, not in their dicts.
bool is_slot(py::handle owner, py::handle name) {
  auto* type = reinterpret_cast<PyObject*>(Py_TYPE(owner.ptr()));
  auto held = py::reinterpret_steal<py::object>(PyObject_GetAttr(type, name.ptr()));
  if (!held) {
    PyErr_Clear();
    return false;
  }
  return Py_TYPE(held.ptr())->tp_descr_set != nullptr;
}

}  // namespace

void SetBack::keep(const py::object& owner, const py::str& name) {
  const py::object namespace_of_own = attribute(owner, py::str("__dict__"));
  py::object value;
  if (is_slot(owner, name) || !namespace_of_own || !PyDict_Check(namespace_of_own.ptr())) {
    value = attribute(owner, name);
  } else {
    value = py::reinterpret_borrow<py::object>(PyDict_GetItemWithError(namespace_of_own.ptr(), name.ptr()));
    if (PyErr_Occurred() != nullptr) {
      throw py::error_already_set();
    }
  }
  kept_.push_back({owner, name, std::move(value)});
}

void SetBack::keep_items(const py::dict& owner) {
  auto items = py::reinterpret_steal<py::dict>(PyDict_Copy(owner.ptr()));
  if (!items) {
    throw py::error_already_set();
  }
  kept_items_.push_back({owner, std::move(items)});
}

void SetBack::set_back() noexcept {
  const auto kept = std::move(kept_);
  kept_.clear();
  const auto kept_items = std::move(kept_items_);
  kept_items_.clear();
  const py::error_scope raised;
  for (auto each = kept.rbegin(); each != kept.rend(); ++each) {
    // One that was not there is deleted.
    if (PyObject_GenericSetAttr(each->owner.ptr(), each->name.ptr(), each->value.ptr()) != 0) {
      PyErr_Clear();
    }
  }
  for (auto each = kept_items.rbegin(); each != kept_items.rend(); ++each) {
    PyDict_Clear(each->owner.ptr());
    if (PyDict_Update(each->owner.ptr(), each->items.ptr()) != 0) {
      PyErr_Clear();
    }
  }
}

}  // namespace airgraph
