// Puts attributes back that something else writes meanwhile.
#pragma once

#include <pybind11/pybind11.h>

#include <vector>

namespace airgraph {

// A context: at its end, the attributes that were kept within it hold again what they held then. No Python code of
// theirs runs, so that no signal comes between. Needs the GIL.
class SetBack {
 public:
  // The attribute of an object with plain attributes, set or not.
  void keep(const pybind11::object& owner, const pybind11::str& name);
  void set_back() noexcept;

 private:
  struct Kept {
    pybind11::object owner, name, value;
  };
  std::vector<Kept> kept_;
};

}  // namespace airgraph
