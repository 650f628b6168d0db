// A context manager that an exception of a signal handler does not leave half done.
#pragma once

#include <torch/csrc/utils/pybind.h>

namespace airgraph {

// `with` over an object that has `_enter`, `_leave` and `_recover`, so that a block which is left by an exception
// leaves nothing behind. An exception of a signal handler may also keep `_leave` from beginning: what `_recover` does
// is made up for here, where none can fall.
struct Block {
  static pybind11::object enter(const pybind11::object& self) {
    return recovering(self, [&self] { return self.attr("_enter")(); });
  }

  static pybind11::object exit(const pybind11::object& self, const pybind11::args& raised) {
    return recovering(self, [&] { return self.attr("_leave")(*raised); });
  }

 private:
  static constexpr int most_interruptions = 1000;

  template <class Call>
  static pybind11::object recovering(const pybind11::object& self, const Call& call) {
    try {
      return call();
    } catch (const pybind11::error_already_set&) {
      for (int i = 0; i < most_interruptions; ++i) {
        try {
          self.attr("_recover")();
          break;
        } catch (const pybind11::error_already_set&) {
          // Interrupted too: it does what is left to be done.
        }
      }
      throw;
    }
  }
};

}  // namespace airgraph
