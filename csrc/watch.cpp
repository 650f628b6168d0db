#include "watch.h"

namespace airgraph {
namespace {

namespace py = pybind11;

// Whether a new reference is that object; false, without an error left behind, where there is none.
bool is_same(PyObject* found, const py::object& expected) {
  if (found == nullptr) {
    PyErr_Clear();
    return false;
  }
  const bool same = found == expected.ptr();
  Py_DECREF(found);
  return same;
}

bool has_keys(const py::object& owner, const py::object& expected) {
  const auto count = PyTuple_GET_SIZE(expected.ptr());
  if (PyDict_GET_SIZE(owner.ptr()) != count) {
    return false;
  }
  Py_ssize_t position = 0, index = 0;
  PyObject *key = nullptr, *value = nullptr;
  while (PyDict_Next(owner.ptr(), &position, &key, &value) != 0) {
    PyObject* want = PyTuple_GET_ITEM(expected.ptr(), index++);
    if (key != want && PyObject_RichCompareBool(key, want, Py_EQ) != 1) {
      PyErr_Clear();
      return false;
    }
  }
  return true;
}

}  // namespace

Watch::Watch(const py::tuple& items, const py::tuple& lengths, const py::tuple& absent, const py::tuple& keys,
             const py::tuple& attributes) {
  for (const auto& each : items) {
    const auto item = py::reinterpret_borrow<py::tuple>(each);
    // A subclass may look up its items in a way of its own.
    auto& kind = PyDict_CheckExact(py::object(item[0]).ptr()) ? dict_items_ : other_items_;
    kind.push_back({item[0], item[1], item[2]});
  }
  for (const auto& each : lengths) {
    const auto item = py::reinterpret_borrow<py::tuple>(each);
    lengths_.push_back({item[0], item[1].cast<Py_ssize_t>()});
  }
  for (const auto& each : absent) {
    const auto item = py::reinterpret_borrow<py::tuple>(each);
    absent_.push_back({item[0], item[1], py::none()});
  }
  for (const auto& each : keys) {
    const auto item = py::reinterpret_borrow<py::tuple>(each);
    keys_.push_back({item[0], item[1], py::none()});
  }
  for (const auto& each : attributes) {
    const auto item = py::reinterpret_borrow<py::tuple>(each);
    attributes_.push_back({item[0], item[1], item[2]});
  }
}

bool Watch::changed() const {
  for (const auto& item : dict_items_) {
    // A borrowed reference.
    if (PyDict_GetItemWithError(item.owner.ptr(), item.key.ptr()) != item.value.ptr()) {
      PyErr_Clear();
      return true;
    }
  }
  for (const auto& item : other_items_) {
    if (!is_same(PyObject_GetItem(item.owner.ptr(), item.key.ptr()), item.value)) {
      return true;
    }
  }
  for (const auto& sized : lengths_) {
    if (PyObject_Size(sized.owner.ptr()) != sized.length) {
      PyErr_Clear();
      return true;
    }
  }
  for (const auto& item : absent_) {
    if (PyDict_Contains(item.owner.ptr(), item.key.ptr()) != 0) {
      PyErr_Clear();
      return true;
    }
  }
  for (const auto& item : keys_) {
    if (!has_keys(item.owner, item.key)) {
      return true;
    }
  }
  for (const auto& item : attributes_) {
    if (!is_same(PyObject_GetAttr(item.owner.ptr(), item.key.ptr()), item.value)) {
      return true;
    }
  }
  return false;
}

int Watch::traverse(visitproc visit, void* arg) const {
  for (const auto* items : {&dict_items_, &other_items_, &attributes_, &absent_, &keys_}) {
    for (const auto& item : *items) {
      Py_VISIT(item.owner.ptr());
      Py_VISIT(item.key.ptr());
      Py_VISIT(item.value.ptr());
    }
  }
  for (const auto& sized : lengths_) {
    Py_VISIT(sized.owner.ptr());
  }
  return 0;
}

void Watch::clear() {
  // Moved out first: what is released may run Python code that comes back here.
  const auto items = {std::move(dict_items_), std::move(other_items_), std::move(attributes_), std::move(absent_),
                      std::move(keys_)};
  const auto lengths = std::move(lengths_);
}

}  // namespace airgraph
