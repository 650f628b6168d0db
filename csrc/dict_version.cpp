#include "dict_version.h"

#include <unordered_map>
#include <utility>

namespace airgraph {

#if PY_VERSION_HEX < 0x030C0000

DictVersion::DictVersion(PyObject* dict)
    : dict_(dict), version_(&reinterpret_cast<PyDictObject*>(dict)->ma_version_tag) {}

DictVersion::DictVersion(DictVersion&& other) noexcept = default;

DictVersion::~DictVersion() = default;

const uint64_t* DictVersion::changes_of_all() { return nullptr; }

#else

namespace {

// What one dict is watched by. Nodes of the table stay where they are, so that a version is read without a look-up.
struct Watched {
  uint64_t version = 1;
  size_t owners = 0;
};

using Table = std::unordered_map<PyObject*, Watched>;

// The interpreter calls back with nothing but the dict, so there is one table. It is never destroyed: dicts may be
// changed, and owners go, until the process ends.
Table& watched_dicts() {
  static auto& table = *new Table;
  return table;
}

uint64_t changes = 1;

// Called before a change is made, with the GIL, and no Python runs in between: whoever compares after this call sees
// the change. Every event counts, also those that leave the entries as they are.
int count_change(PyDict_WatchEvent /*event*/, PyObject* dict, PyObject* /*key*/, PyObject* /*value*/) {
  auto& table = watched_dicts();
  if (const auto found = table.find(dict); found != table.end()) {
    ++found->second.version;
    ++changes;
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
  ++watched.owners;
  version_ = &watched.version;
}

DictVersion::DictVersion(DictVersion&& other) noexcept
    : dict_(other.dict_), version_(std::exchange(other.version_, nullptr)) {}

DictVersion::~DictVersion() {
  if (version_ == nullptr) {
    return;
  }
  auto& table = watched_dicts();
  const auto found = table.find(dict_);
  if (--found->second.owners == 0) {
    table.erase(found);
    // Fails where the interpreter ends and has given its watchers up.
    const PendingError pending;
    PyDict_Unwatch(watcher().id, dict_);
  }
}

#endif

}  // namespace airgraph
