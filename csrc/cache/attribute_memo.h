// Remembers that answers about an object hold, such as what an attribute is, until its class or attributes change.
#pragma once

#include <pybind11/pybind11.h>

#include <array>
#include <cstdint>
#include <memory>

#include "../internals/dict_version.h"

namespace airgraph {

// For a few objects that come to one place by turns. It keeps none of them alive, so what it says is asked for an
// object at hand only. The answers themselves are kept by the caller, by the way. Needs the GIL.
class AttributeMemo {
 public:
  static constexpr int kWays = 4;
  static constexpr int kNone = -1;

  // The way of an object whose class and attributes are as they were when it was learned; kNone if there is none.
  int find(PyObject* object) const;

  // A way to learn an object in, from this moment on; kNone where that is not worth while, or not possible: it was not
  // seen lately, has attributes elsewhere than in a dict, or a way of its own to look them up.
  int begin(PyObject* object);

  // All that is known by this way is known now.
  void learned(int way) { ways_.at(static_cast<size_t>(way)).is_learned = true; }

  // Whether an object that is being learned has this attribute as long as it is as it is: no code runs to make it.
  static bool is_attribute(PyObject* object, PyObject* name, const PyObject* value);

  // The same of having an attribute at all, or not.
  static bool decides_presence(PyObject* object, PyObject* name, bool has);

  // So that the next `find` need not wait for memory.
  void fetch_ahead() const;

  int traverse(visitproc visit, void* arg) const;
  void clear();

 private:
  struct Way {
    pybind11::object type;
    unsigned type_version = 0;
    // Only ever compared, and asked for ahead.
    PyObject *object = nullptr, *dict = nullptr;
    std::unique_ptr<DictVersion> version;
    uint64_t seen = 0;
    bool is_learned = false;
  };

  std::array<Way, kWays> ways_;
  // Objects that were not found, the last ones.
  std::array<PyObject*, kWays> missed_{};
  size_t next_missed_ = 0, next_way_ = 0;
};

}  // namespace airgraph
