#include "watch.h"

#include <algorithm>
#include <map>
#include <utility>

namespace airgraph {
namespace {

namespace py = pybind11;

// A replay has driven out of the caches what the next call compares; so many of its places are asked for ahead.
constexpr size_t kAhead = 12;

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

bool has_keys(const py::object& owner, const py::object& expected) {
  const auto count = PyTuple_GET_SIZE(expected.ptr());
  if (PyDict_Size(owner.ptr()) != count) {
    return false;
  }
  Py_ssize_t position = 0, index = 0;
  PyObject *key = nullptr, *value = nullptr;
  while (index < count && PyDict_Next(owner.ptr(), &position, &key, &value) != 0) {
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
             const py::tuple& attributes, const py::tuple& types,
             const py::tuple& class_items, const py::tuple& class_absent, const py::tuple& functions,
             const py::tuple& whole_classes, const py::tuple& cells) {
  // In the order of their addresses: neighbours in memory are looked at one after the other.
  std::map<PyObject*, Dict> by_dict;
  std::map<PyObject*, Class> by_class;
  const auto dict = [&by_dict](const py::object& owner) -> Dict& {
    return by_dict.try_emplace(owner.ptr(), owner).first->second;
  };
  const auto class_of = [&by_class](const py::object& owner) -> Class& {
    return by_class.try_emplace(owner.ptr(), owner).first->second;
  };
  for (const auto& each : items) {
    const auto [owner, key, value] = each.cast<std::tuple<py::object, py::object, py::object>>();
    // Of a subclass of dict what dict itself holds, and not what its own `__getitem__` makes of that.
    if (PyDict_Check(owner.ptr())) {
      dict(owner).items.push_back({key, value});
    } else {
      items_.push_back({owner, key, value});
    }
  }
  for (const auto& each : lengths) {
    const auto [owner, length] = each.cast<std::tuple<py::object, Py_ssize_t>>();
    if (is_plain_dict(owner)) {
      dict(owner).length = length;
    } else {
      lengths_.push_back({owner, length});
    }
  }
  for (const auto& each : absent) {
    const auto [owner, key] = each.cast<std::tuple<py::object, py::object>>();
    dict(owner).absent.push_back(key);
  }
  for (const auto& each : keys) {
    const auto [owner, expected] = each.cast<std::tuple<py::object, py::tuple>>();
    if (PyDict_CheckExact(owner.ptr())) {
      dict(owner).keys = expected;
    } else {
      keys_.push_back({owner, expected});
    }
  }
  for (const auto& each : attributes) {
    const auto [owner, name, value] = each.cast<std::tuple<py::object, py::object, py::object>>();
    if (PyType_Check(owner.ptr())) {
      class_of(owner).attributes.push_back({name, value});
    } else {
      attributes_.push_back({owner, name, value});
    }
  }
  for (const auto& each : class_items) {
    const auto [owner, name, value] = each.cast<std::tuple<py::object, py::object, py::object>>();
    class_of(owner).items.push_back({name, value});
  }
  for (const auto& each : class_absent) {
    const auto [owner, name] = each.cast<std::tuple<py::object, py::object>>();
    class_of(owner).absent.push_back(name);
  }
  for (const auto& each : functions) {
    functions_.emplace_back(py::reinterpret_borrow<py::object>(each));
  }
  for (const auto& each : whole_classes) {
    const auto [owner, is_as_it_was] = each.cast<std::pair<py::object, py::object>>();
    class_of(owner).is_as_it_was = is_as_it_was;
  }
  for (const auto& each : cells) {
    const auto [owner, value] = each.cast<std::tuple<py::object, py::object>>();
    if (!PyCell_Check(owner.ptr())) {
      throw py::type_error("expected a cell");
    }
    cells_.push_back({owner, value});
  }
  for (const auto& each : types) {
    const auto [owner, expected] = each.cast<std::tuple<py::object, py::object>>();
    types_.push_back({owner, expected});
  }
  for (auto& [address, each] : by_dict) {
    dicts_.push_back(std::move(each));
  }
  for (auto& [address, each] : by_class) {
    classes_.push_back(std::move(each));
  }
  std::sort(functions_.begin(), functions_.end(),
            [](const Function& a, const Function& b) { return a.owner.ptr() < b.owner.ptr(); });
  std::sort(types_.begin(), types_.end(), [](const Item& a, const Item& b) { return a.key.ptr() < b.key.ptr(); });
  for (const auto& each : dicts_) {
    dicts_seen_.push_back({each.version.place(), 0});
    all_counted_ = all_counted_ && each.version.now() != 0;
  }
  for (const auto& each : classes_) {
    classes_seen_.push_back({&reinterpret_cast<PyTypeObject*>(each.owner.ptr())->tp_version_tag, 0});
  }
  for (const auto& each : functions_) {
    functions_seen_.push_back({reinterpret_cast<PyFunctionObject*>(each.owner.ptr()), each.code.ptr(),
                               each.defaults.ptr(), each.keyword_defaults.ptr()});
  }
  for (const auto& each : types_) {
    types_seen_.push_back({each.key.ptr(), reinterpret_cast<PyTypeObject*>(each.value.ptr())});
  }
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
  return keys && !has_keys(owner, keys);
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
      if (dicts_[i].changed()) {
        return true;
      }
      seen.compared = version;
    }
  }
  changes_seen_ = changes;
  return false;
}

bool Watch::classes_changed() {
  const size_t count = classes_seen_.size();
  for (size_t i = 0; i < count; ++i) {
    if (i + kAhead < count) {
      __builtin_prefetch(classes_seen_[i + kAhead].version);
    }
    auto& seen = classes_seen_[i];
    // Zero: it was changed, and nothing was looked up in it since.
    if (*seen.version != seen.compared || *seen.version == 0) {
      if (classes_[i].changed()) {
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
    if (Py_TYPE(types_seen_[i].owner) != types_seen_[i].type) {
      return true;
    }
  }
  return false;
}

bool Watch::changed() {
  if (cleared_) {
    return true;
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
  for (const auto& each : dicts_) {
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
  for (const auto& each : classes_) {
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
  for (const auto* entries : {&items_, &attributes_}) {
    for (const auto& entry : *entries) {
      Py_VISIT(entry.owner.ptr());
      Py_VISIT(entry.key.ptr());
      Py_VISIT(entry.value.ptr());
    }
  }
  for (const auto* pairs : {&keys_, &cells_, &types_}) {
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
  const auto keys = std::move(keys_), cells = std::move(cells_), types = std::move(types_);
  cleared_ = true;
}

}  // namespace airgraph
