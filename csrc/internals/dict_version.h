// Tells without a look inside whether a dict was changed: by its version up to Python 3.11, later by the interpreter's
// dict watchers.
#pragma once

#include <Python.h>

#include <cstdint>
#include <memory>

namespace airgraph {

struct WatchedDict;

// A number that differs after every change of one dict, and is another one for each dict that comes to its address. It
// is read only while the dict lives. Needs the GIL.
class DictVersion {
 public:
  explicit DictVersion(PyObject* dict);
  DictVersion(DictVersion&& other) noexcept;
  DictVersion(const DictVersion&) = delete;
  DictVersion& operator=(const DictVersion&) = delete;
  DictVersion& operator=(DictVersion&&) = delete;
  ~DictVersion();

  // 0 where this interpreter cannot tell: then what is in the dict must be compared.
  uint64_t now() const { return *place(); }

  // Where it is read from, as long as this lives.
  const uint64_t* place() const { return version_ == nullptr ? &kUnknown : version_; }

  // Differs after every change of any dict that a version is of; nullptr where this interpreter does not count them.
  static const uint64_t* changes_of_all();

 private:
  static constexpr uint64_t kUnknown = 0;

  PyObject* dict_;
  const uint64_t* version_ = nullptr;
  // Of an interpreter that tells of changes, by one for all that look at the dict.
  std::shared_ptr<WatchedDict> watched_;
};

// Whether the order of so many keys changes with the dict only. An OrderedDict has an order of its own beside it.
bool keeps_its_order(PyObject* dict, Py_ssize_t count);

// Whether a dict has the keys of a tuple, in its order, and no others. True is 1 to a dict, and not to what looks at
// keys.
bool has_keys(PyObject* dict, PyObject* keys);

// Where an object has its attributes, which keeps it alive; nullptr if that is no dict. A borrowed reference.
PyObject* dict_of(PyObject* object);

}  // namespace airgraph
