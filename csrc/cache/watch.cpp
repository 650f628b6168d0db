#include "watch.h"

#include <algorithm>
#include <utility>

#include "../internals/class_version.h"

namespace airgraph {
namespace {

namespace py = pybind11;

// A replay has driven out of the caches what the next call compares; so many of its places are asked for ahead.
constexpr size_t kAhead = 32;

// One whose contents change through dict's own functions only.
bool is_plain_dict(const py::object& owner) {
  return PyDict_CheckExact(owner.ptr()) || PyODict_CheckExact(owner.ptr());
}

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

}  // namespace

Watch::Dict& Watch::dict(const py::object& owner) { return dicts_.try_emplace(owner.ptr(), owner).first->second; }

Watch::Class& Watch::class_of(const py::object& owner) {
  return classes_.try_emplace(owner.ptr(), owner).first->second;
}

void Watch::add_item(const py::object& container, const py::object& key, const py::object& value) {
  // Of a subclass of dict what dict itself holds, and not what its own `__getitem__` makes of that.
  if (PyDict_Check(container.ptr())) {
    dict(container).items.push_back({key, value});
  } else {
    items_.push_back({container, key, value});
  }
}

void Watch::add_length(const py::object& container, Py_ssize_t length) {
  if (is_plain_dict(container)) {
    dict(container).length = length;
  } else {
    lengths_.push_back({container, length});
  }
}

void Watch::add_absent(const py::object& owner, const py::object& key) { dict(owner).absent.push_back(key); }

void Watch::add_keys(const py::object& owner, const py::tuple& keys) {
  if (PyDict_Check(owner.ptr()) && keeps_its_order(owner.ptr(), PyTuple_GET_SIZE(keys.ptr()))) {
    dict(owner).keys = keys;
  } else {
    keys_.push_back({owner, keys});
  }
}

void Watch::add_attribute(const py::object& owner, const py::object& name, const py::object& value) {
  if (PyType_Check(owner.ptr())) {
    class_of(owner).attributes.push_back({name, value});
  } else {
    attributes_.push_back({owner, name, value});
  }
}

void Watch::add_type(const py::object& owner, const py::object& type) {
  types_.push_back({owner, type, py::reinterpret_borrow<py::object>(dict_of(owner.ptr()))});
}

void Watch::add_class_item(const py::object& owner, const py::object& name, const py::object& value) {
  class_of(owner).items.push_back({name, value});
}

void Watch::add_class_absent(const py::object& owner, const py::object& name) {
  class_of(owner).absent.push_back(name);
}

void Watch::add_class(const py::object& owner, const py::object& is_as_it_was) {
  class_of(owner).is_as_it_was = is_as_it_was;
  if (!registrations_ && PyObject_HasAttrString(owner.ptr(), "_abc_impl") != 0) {
    registrations_ = py::module_::import("abc").attr("get_cache_token");
  }
}

void Watch::add_function(const py::object& function) { functions_.emplace_back(function); }

void Watch::add_cell(const py::object& cell, const py::object& value) {
  if (!PyCell_Check(cell.ptr())) {
    throw py::type_error("expected a cell");
  }
  cells_.push_back({cell, value});
}

void Watch::settle() {
  std::sort(functions_.begin(), functions_.end(),
            [](const Function& a, const Function& b) { return a.owner.ptr() < b.owner.ptr(); });
  std::sort(types_.begin(), types_.end(), [](const Entry& a, const Entry& b) { return a.owner.ptr() < b.owner.ptr(); });
  for (const auto& [address, each] : dicts_) {
    dicts_seen_.push_back({each.version.place(), 0, &each});
    all_counted_ = all_counted_ && each.version.now() != 0;
  }
  for (const auto& [address, each] : classes_) {
    classes_seen_.push_back({place_of_class_version(reinterpret_cast<PyTypeObject*>(each.owner.ptr())), 0, &each});
  }
  for (const auto& each : functions_) {
    functions_seen_.push_back({reinterpret_cast<PyFunctionObject*>(each.owner.ptr()), each.code.ptr(),
                               each.defaults.ptr(), each.keyword_defaults.ptr()});
  }
  for (const auto& each : types_) {
    types_seen_.push_back({each.owner.ptr(), reinterpret_cast<PyTypeObject*>(each.key.ptr()), each.value.ptr()});
  }
  settled_ = true;
}

bool Watch::Class::changed() const {
  for (const auto& item : attributes) {
    if (!is_same(PyObject_GetAttr(owner.ptr(), item.key.ptr()), item.value)) {
      return true;
    }
  }
  for (const auto& name : absent) {
    if (PyObject_HasAttr(owner.ptr(), name.ptr()) != 0) {
      return true;
    }
  }
  const auto names = py::reinterpret_steal<py::object>(PyObject_GetAttrString(owner.ptr(), "__dict__"));
  for (const auto& item : items) {
    if (!names || !is_same(PyObject_GetItem(names.ptr(), item.key.ptr()), item.value)) {
      PyErr_Clear();
      return true;
    }
  }
  // A look-up gives a changed class its new version.
  PyObject_HasAttrString(owner.ptr(), "__slots__");
  return is_as_it_was && !is_as_it_was().cast<bool>();
}

Watch::Function::Function(py::object function) : owner(std::move(function)) {
  auto* const held = reinterpret_cast<PyFunctionObject*>(owner.ptr());
  code = py::reinterpret_borrow<py::object>(held->func_code);
  defaults = py::reinterpret_borrow<py::object>(held->func_defaults);
  keyword_defaults = py::reinterpret_borrow<py::object>(held->func_kwdefaults);
}

bool Watch::Dict::changed() const {
  if (length >= 0 && PyDict_Size(owner.ptr()) != length) {
    return true;
  }
  for (const auto& item : items) {
    // A borrowed reference.
    if (PyDict_GetItemWithError(owner.ptr(), item.key.ptr()) != item.value.ptr()) {
      PyErr_Clear();
      return true;
    }
  }
  for (const auto& key : absent) {
    if (PyDict_Contains(owner.ptr(), key.ptr()) != 0) {
      PyErr_Clear();
      return true;
    }
  }
  return keys && !has_keys(owner.ptr(), keys.ptr());
}

bool Watch::dicts_changed() {
  const uint64_t* const all = all_counted_ ? DictVersion::changes_of_all() : nullptr;
  const uint64_t changes = all == nullptr ? 0 : *all;
  if (changes != 0 && changes == changes_seen_) {
    return false;
  }
  const size_t count = dicts_seen_.size();
  for (size_t i = 0; i < count; ++i) {
    if (i + kAhead < count) {
      __builtin_prefetch(dicts_seen_[i + kAhead].version);
    }
    auto& seen = dicts_seen_[i];
    // Read before the entries are: comparing keys may run code that changes the dict.
    const auto version = *seen.version;
    if (version != seen.compared || version == 0) {
      ++dicts_compared_;
      if (seen.dict->changed()) {
        return true;
      }
      seen.compared = version;
    }
  }
  changes_seen_ = changes;
  return false;
}

bool Watch::were_registered() {
  auto now = py::reinterpret_steal<py::object>(PyObject_CallNoArgs(registrations_.ptr()));
  if (now && registrations_seen_ && PyObject_RichCompareBool(now.ptr(), registrations_seen_.ptr(), Py_EQ) == 1) {
    return false;
  }
  PyErr_Clear();
  registrations_seen_ = std::move(now);
  return true;
}

bool Watch::classes_changed() {
  if (registrations_ && were_registered()) {
    for (auto& seen : classes_seen_) {
      seen.compared = 0;
    }
  }
  const size_t count = classes_seen_.size();
  for (size_t i = 0; i < count; ++i) {
    if (i + kAhead < count) {
      __builtin_prefetch(classes_seen_[i + kAhead].version);
    }
    auto& seen = classes_seen_[i];
    // Zero: it was changed, and nothing was looked up in it since.
    if (*seen.version != seen.compared || *seen.version == 0) {
      if (seen.watched->changed()) {
        return true;
      }
      seen.compared = *seen.version;
    }
  }
  return false;
}

bool Watch::functions_changed() const {
  const size_t count = functions_seen_.size();
  for (size_t i = 0; i < count; ++i) {
    if (i + kAhead < count) {
      __builtin_prefetch(&functions_seen_[i + kAhead].function->func_code);
    }
    const auto& [function, code, defaults, keyword_defaults] = functions_seen_[i];
    if (function->func_code != code || function->func_defaults != defaults ||
        function->func_kwdefaults != keyword_defaults) {
      return true;
    }
  }
  return false;
}

bool Watch::types_changed() const {
  const size_t count = types_seen_.size();
  for (size_t i = 0; i < count; ++i) {
    if (i + kAhead < count) {
      __builtin_prefetch(types_seen_[i + kAhead].owner);
    }
    const auto& [owner, type, dict] = types_seen_[i];
    if (Py_TYPE(owner) != type || (dict != nullptr && dict_of(owner) != dict)) {
      return true;
    }
  }
  return false;
}

bool Watch::changed() {
  if (cleared_) {
    return true;
  }
  if (!settled_) {
    settle();
  }
  if (dicts_changed() || classes_changed() || functions_changed() || types_changed()) {
    return true;
  }
  for (const auto& cell : cells_) {
    if (PyCell_GET(cell.key.ptr()) != cell.value.ptr()) {
      return true;
    }
  }
  for (const auto& item : items_) {
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
  for (const auto& item : attributes_) {
    if (!is_same(PyObject_GetAttr(item.owner.ptr(), item.key.ptr()), item.value)) {
      return true;
    }
  }
  for (const auto& item : keys_) {
    const auto found = py::reinterpret_steal<py::object>(PySequence_Tuple(item.key.ptr()));
    if (!found || PyObject_RichCompareBool(found.ptr(), item.value.ptr(), Py_EQ) != 1) {
      PyErr_Clear();
      return true;
    }
  }
  return false;
}

int Watch::traverse(visitproc visit, void* arg) const {
  for (const auto& [address, each] : dicts_) {
    Py_VISIT(each.owner.ptr());
    Py_VISIT(each.keys.ptr());
    for (const auto& item : each.items) {
      Py_VISIT(item.key.ptr());
      Py_VISIT(item.value.ptr());
    }
    for (const auto& key : each.absent) {
      Py_VISIT(key.ptr());
    }
  }
  for (const auto& each : functions_) {
    for (const auto* held : {&each.owner, &each.code, &each.defaults, &each.keyword_defaults}) {
      Py_VISIT(held->ptr());
    }
  }
  for (const auto& [address, each] : classes_) {
    Py_VISIT(each.owner.ptr());
    Py_VISIT(each.is_as_it_was.ptr());
    for (const auto* items : {&each.attributes, &each.items}) {
      for (const auto& item : *items) {
        Py_VISIT(item.key.ptr());
        Py_VISIT(item.value.ptr());
      }
    }
    for (const auto& name : each.absent) {
      Py_VISIT(name.ptr());
    }
  }
  for (const auto* entries : {&items_, &attributes_, &types_}) {
    for (const auto& entry : *entries) {
      Py_VISIT(entry.owner.ptr());
      Py_VISIT(entry.key.ptr());
      Py_VISIT(entry.value.ptr());
    }
  }
  for (const auto* pairs : {&keys_, &cells_}) {
    for (const auto& pair : *pairs) {
      Py_VISIT(pair.key.ptr());
      Py_VISIT(pair.value.ptr());
    }
  }
  for (const auto& sized : lengths_) {
    Py_VISIT(sized.owner.ptr());
  }
  return 0;
}

void Watch::clear() {
  // Moved out first: what is released may run Python code that comes back here.
  dicts_seen_.clear();
  classes_seen_.clear();
  functions_seen_.clear();
  types_seen_.clear();
  const auto dicts = std::move(dicts_);
  const auto classes = std::move(classes_);
  const auto items = std::move(items_), attributes = std::move(attributes_);
  const auto lengths = std::move(lengths_);
  const auto functions = std::move(functions_);
  const auto keys = std::move(keys_), cells = std::move(cells_);
  const auto types = std::move(types_);
  cleared_ = true;
}

}  // namespace airgraph
