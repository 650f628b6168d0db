// An attribute of objects whose class keeps a place for it (`__slots__`), read where it lies.
#pragma once

#include <pybind11/pybind11.h>

#include "class_version.h"

namespace airgraph {

// One place where an attribute is read, mostly of objects of one class. Needs the GIL.
class Member {
 public:
  explicit Member(const char* name) : name_(PyUnicode_InternFromString(name)) {}
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;
  ~Member() = default;

  // What `owner.name` is, whatever kind of attribute it may be; null with Python's error set where there is none.
  pybind11::object of(PyObject* owner) {
    PyTypeObject* const type = Py_TYPE(owner);
    if (type != type_ || class_version(type) != version_) {
      find(type);
    }
    if (offset_ > 0) {
      PyObject* const held = *reinterpret_cast<PyObject**>(reinterpret_cast<char*>(owner) + offset_);
      if (held != nullptr) {
        return pybind11::reinterpret_borrow<pybind11::object>(held);
      }
    }
    return pybind11::reinterpret_steal<pybind11::object>(PyObject_GetAttr(owner, name_));
  }

 private:
  void find(PyTypeObject* type);

  PyObject* const name_;
  // A class as it was, by its version, which no other class has.
  PyTypeObject* type_ = nullptr;
  unsigned version_ = 0;
  // In its objects; 0: they are asked.
  Py_ssize_t offset_ = 0;
};

}  // namespace airgraph
