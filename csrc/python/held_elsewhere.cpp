#include "held_elsewhere.h"

#include <algorithm>

#include "../internals/holders.h"

namespace airgraph {

namespace py = pybind11;

std::vector<bool> held_elsewhere(const py::list& tensors) {
  constexpr Py_ssize_t lists = 2;
  // By Python's reference to what C++ holds too.
  constexpr Py_ssize_t own = 1;
  const auto all = tensors.cast<std::vector<at::Tensor>>();
  auto held = held_by_others(all);
  for (size_t i = 0; i < all.size(); ++i) {
    const auto is_this = [&](const at::Tensor& other) { return other.is_same(all[i]); };
    const auto times = std::count_if(all.begin(), all.end(), is_this);
    bool by_python = Py_REFCNT(PyList_GET_ITEM(tensors.ptr(), static_cast<Py_ssize_t>(i))) > lists * times + own;
    if (all[i].is_view()) {
      const at::Tensor base(all[i]._base());
      const auto listed =
          std::count_if(all.begin(), all.end(), [&](const at::Tensor& each) { return each.is_same(base); });
      by_python = by_python || Py_REFCNT(py::cast(base).ptr()) > lists * listed + 1 + own;
    }
    held[i] = held[i] || by_python;
  }
  return held;
}

}  // namespace airgraph
