// Puts attributes and items back that something else writes meanwhile.
#pragma once

#include <pybind11/pybind11.h>

#include <vector>

namespace airgraph {

// A context: at its end, the attributes and dicts that were kept within it hold again what they held then. No Python
// code of theirs runs, so that no signal comes between. Needs the GIL.
class SetBack {
 public:
  // The attribute of an object with plain attributes, set or not; one that its class has is not its own.
  void keep(const pybind11::object& owner, const pybind11::str& name);
  // All items of a dict.
  void keep_items(const pybind11::dict& owner);
  void set_back() noexcept;

 private:
  struct Kept {
    pybind11::object owner, name, value;
  };
  struct KeptItems {
    pybind11::dict owner, items;
  };
  std::vector<Kept> kept_;
  std::vector<KeptItems> kept_items_;
};

}  // namespace airgraph
