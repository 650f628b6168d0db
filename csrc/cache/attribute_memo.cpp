#include "attribute_memo.h"

#include <algorithm>
#include <utility>

#include "../internals/class_version.h"

namespace airgraph {
namespace {

namespace py = pybind11;

// Classes made in Python may become a descriptor's at any time.
bool may_change(const PyObject* found) { return PyType_HasFeature(Py_TYPE(found), Py_TPFLAGS_HEAPTYPE) != 0; }

bool is_data_descriptor(const PyObject* found) { return Py_TYPE(found)->tp_descr_set != nullptr || may_change(found); }

bool is_descriptor(const PyObject* found) { return Py_TYPE(found)->tp_descr_get != nullptr || may_change(found); }

// A borrowed reference; nullptr where the object itself has no such attribute.
PyObject* own_attribute(PyObject* object, PyObject* name) {
  PyObject* const held = dict_of(object);
  PyObject* const found = held == nullptr ? nullptr : PyDict_GetItemWithError(held, name);
  if (found == nullptr) {
    PyErr_Clear();
  }
  return found;
}

}  // namespace

int AttributeMemo::find(PyObject* object) const {
  for (int way = 0; way < kWays; ++way) {
    const auto& each = ways_.at(static_cast<size_t>(way));
    // In this order: what has the same dict as then keeps it alive, so that its version may be read.
    if (each.object == object && each.is_learned && reinterpret_cast<PyObject*>(Py_TYPE(object)) == each.type.ptr() &&
        class_version(Py_TYPE(object)) == each.type_version && dict_of(object) == each.dict &&
        each.version->now() == each.seen) {
      return way;
    }
  }
  return kNone;
}

int AttributeMemo::begin(PyObject* object) {
  if (std::find(missed_.begin(), missed_.end(), object) == missed_.end()) {
    missed_.at(next_missed_++ % kWays) = object;
    return kNone;
  }
  PyTypeObject* const type = Py_TYPE(object);
  if (!has_usual_attributes(type) || class_version(type) == 0) {
    return kNone;
  }
  PyObject* const held = dict_of(object);
  if (held == nullptr || !PyDict_CheckExact(held)) {
    return kNone;
  }
  // The one it had, if its attributes have changed since.
  const auto had =
      std::find_if(ways_.begin(), ways_.end(), [object](const Way& each) { return each.object == object; });
  const auto way = had != ways_.end() ? static_cast<size_t>(had - ways_.begin()) : next_way_++ % kWays;
  auto version = std::make_unique<DictVersion>(held);
  const auto seen = version->now();
  if (seen == 0) {
    return kNone;
  }
  ways_.at(way) = {py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(type)),
                   class_version(type),
                   object,
                   held,
                   std::move(version),
                   seen};
  return static_cast<int>(way);
}

bool AttributeMemo::is_attribute(PyObject* object, PyObject* name, const PyObject* value) {
  PyObject* const of_class = held_by_class(Py_TYPE(object), name);
  if (of_class != nullptr && is_data_descriptor(of_class)) {
    return false;
  }
  if (PyObject* const own = own_attribute(object, name); own != nullptr) {
    return own == value;
  }
  return of_class == value && of_class != nullptr && !is_descriptor(of_class);
}

bool AttributeMemo::decides_presence(PyObject* object, PyObject* name, bool has) {
  PyObject* const of_class = held_by_class(Py_TYPE(object), name);
  const bool is_own = own_attribute(object, name) != nullptr;
  if (of_class == nullptr) {
    return is_own == has;
  }
  // What a descriptor is asked for may be missing, but for functions.
  return has && (!is_descriptor(of_class) || PyFunction_Check(of_class) || (is_own && !is_data_descriptor(of_class)));
}

void AttributeMemo::fetch_ahead() const {
  const auto& latest = ways_[(next_way_ + kWays - 1) % kWays];
  if (latest.is_learned) {
    __builtin_prefetch(latest.object);
    __builtin_prefetch(latest.version->place());
  }
}

int AttributeMemo::traverse(visitproc visit, void* arg) const {
  for (const auto& each : ways_) {
    Py_VISIT(each.type.ptr());
  }
  return 0;
}

void AttributeMemo::clear() {
  // Moved out first: what is released may run Python code that comes back here.
  const auto ways = std::exchange(ways_, {});
}

}  // namespace airgraph
