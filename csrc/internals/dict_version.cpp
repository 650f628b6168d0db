#include "dict_version.h"

#include <unordered_map>
#include <utility>

namespace airgraph {

#if PY_VERSION_HEX < 0x030C0000

struct WatchedDict {};

DictVersion::DictVersion(PyObject* dict)
    : dict_(dict), version_(&reinterpret_cast<PyDictObject*>(dict)->ma_version_tag) {}

DictVersion::DictVersion(DictVersion&& other) noexcept = default;

DictVersion::~DictVersion() = default;

const uint64_t* DictVersion::changes_of_all() { return nullptr; }

#else

struct WatchedDict {
  // 0 when it is gone.
  uint64_t version = 1;
};

namespace {

using Table = std::unordered_map<PyObject*, std::shared_ptr<WatchedDict> >;

// The interpreter calls back with nothing but the dict, so there is one table, of dicts that live. It is never
// destroyed: dicts may be changed until the process ends.
Table& watched_dicts() {
  static auto& table = *new Table;
  return table;
}

uint64_t changes = 1;

// Called before a change is made, with the GIL, and no Python runs in between: whoever compares after this call sees
// the change. Every event counts, also those that leave the entries as they are.
int count_change(PyDict_WatchEvent event, PyObject* dict, PyObject* /*key*/, PyObject* /*value*/) {
  auto& table = watched_dicts();
  if (const auto found = table.find(dict); found != table.end()) {
    ++changes;
    if (event == PyDict_EVENT_DEALLOCATED) {
      found->second->version = 0;
      table.erase(found);
    } else {
      ++found->second->version;
    }
  }
  return 0;
}

// Keeps the error that may be on its way while something else fails.
class PendingError {
 public:
  PendingError() = default;
  PendingError(const PendingError&) = delete;
  PendingError& operator=(const PendingError&) = delete;
  ~PendingError() { PyErr_SetRaisedException(error_); }

 private:
  PyObject* error_ = PyErr_GetRaisedException();
};

// An interpreter has eight watchers for everyone; one is taken at the first dict and kept.
struct Watcher {
  PyInterpreterState* interpreter = PyInterpreterState_Get();
  // Negative where none was left.
  int id = PyDict_AddWatcher(&count_change);
};

const Watcher& watcher() {
  static const Watcher taken;
  return taken;
}

// Python 3.13.0 does not tell watchers of attributes that lie in their object, where only the object's dict is watched:
// https://github.com/python/cpython/issues/125608. To be removed with the support of 3.13.0.
bool tells_of_all_changes(PyObject* dict) {
  return Py_Version >> 8 != 0x030D00 || reinterpret_cast<PyDictObject*>(dict)->ma_values == nullptr;
}

}  // namespace

const uint64_t* DictVersion::changes_of_all() { return &changes; }

DictVersion::DictVersion(PyObject* dict) : dict_(dict) {
  const PendingError pending;
  const auto& [interpreter, id] = watcher();
  if (id < 0 || interpreter != PyInterpreterState_Get() || !tells_of_all_changes(dict) || PyDict_Watch(id, dict) != 0) {
    return;
  }
  auto& watched = watched_dicts()[dict];
  if (watched == nullptr) {
    watched = std::make_shared<WatchedDict>();
  }
  watched_ = watched;
  version_ = &watched_->version;
}

DictVersion::DictVersion(DictVersion&& other) noexcept
    : dict_(other.dict_), version_(std::exchange(other.version_, nullptr)), watched_(std::move(other.watched_)) {}

DictVersion::~DictVersion() {
  // Nobody else looks at it but the table; a dict that is gone is in it no more.
  if (watched_ != nullptr && watched_->version != 0 && watched_.use_count() == 2) {
    watched_dicts().erase(dict_);
    // Fails where the interpreter ends and has given its watchers up.
    const PendingError pending;
    PyDict_Unwatch(watcher().id, dict_);
  }
}

#endif

namespace {

bool is_same_key(PyObject* key, PyObject* want) {
  if (key == want) {
    return true;
  }
  const bool same = Py_TYPE(key) == Py_TYPE(want) && PyObject_RichCompareBool(key, want, Py_EQ) == 1;
  PyErr_Clear();
  return same;
}

}  // namespace

bool keeps_its_order(PyObject* dict, Py_ssize_t count) {
  return PyDict_CheckExact(dict) || (PyODict_CheckExact(dict) && count < 2);
}

bool has_keys(PyObject* dict, PyObject* keys) {
  const auto count = PyTuple_GET_SIZE(keys);
  if (PyDict_Size(dict) != count) {
    return false;
  }
  if (!keeps_its_order(dict, count)) {
    PyObject* const found = PySequence_Tuple(dict);
    bool same = found != nullptr && PyTuple_GET_SIZE(found) == count;
    for (Py_ssize_t i = 0; same && i < count; ++i) {
      same = is_same_key(PyTuple_GET_ITEM(found, i), PyTuple_GET_ITEM(keys, i));
    }
    Py_XDECREF(found);
    PyErr_Clear();
    return same;
  }
  Py_ssize_t position = 0, index = 0;
  PyObject *key = nullptr, *value = nullptr;
  while (index < count && PyDict_Next(dict, &position, &key, &value) != 0) {
    if (!is_same_key(key, PyTuple_GET_ITEM(keys, index++))) {
      return false;
    }
  }
  return true;
}

PyObject* dict_of(PyObject* object) {
#if PY_VERSION_HEX < 0x030D0000
  PyObject** const held = _PyObject_GetDictPtr(object);
  return held == nullptr ? nullptr : *held;
#else
  if (Py_TYPE(object)->tp_dictoffset == 0) {
    return nullptr;
  }
  PyObject* const held = PyObject_GenericGetDict(object, nullptr);
  if (held == nullptr) {
    PyErr_Clear();
  } else {
    Py_DECREF(held);
  }
  return held;
#endif
}

}  // namespace airgraph
