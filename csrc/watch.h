// Notices whether Python objects that were read once are still where they were. Compares identities, computes nothing.
#pragma once

#include <pybind11/pybind11.h>

#include <vector>

namespace airgraph {

class Watch {
 public:
  // items: (dict or list, key, value). lengths: (container, length). absent: (dict, key). keys: (dict, keys in order).
  // attributes: (object, name, value).
  Watch(const pybind11::tuple& items, const pybind11::tuple& lengths, const pybind11::tuple& absent,
        const pybind11::tuple& keys, const pybind11::tuple& attributes);

  // Also true where something is missing. Needs the GIL.
  bool changed() const;

  // For Python's garbage collector: what is watched usually leads back to the watch.
  int traverse(visitproc visit, void* arg) const;
  void clear();

 private:
  struct Item {
    pybind11::object owner, key, value;
  };
  struct Sized {
    pybind11::object owner;
    Py_ssize_t length;
  };

  std::vector<Item> dict_items_, other_items_, attributes_, absent_;
  std::vector<Sized> lengths_;
  std::vector<Item> keys_;
};

}  // namespace airgraph
