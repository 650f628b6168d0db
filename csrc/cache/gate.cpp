#include "gate.h"

#include <utility>

namespace airgraph {

namespace py = pybind11;

Gate::Gate(py::object watch, py::object settled, py::object reader)
    : watch_(watch.cast<Watch*>()),
      settled_(settled.cast<const Settled*>()),
      reader_(reader.cast<CallReader*>()),
      held_{std::move(watch), std::move(settled), std::move(reader)} {}

py::object Gate::read(const py::tuple& values) {
  if (has_changed()) {
    return py::bool_(false);
  }
  return reader_->read(values);
}

bool Gate::has_changed() { return watch_ == nullptr || watch_->changed() || !settled_->unchanged(); }

int Gate::traverse(visitproc visit, void* arg) const {
  for (const auto& each : held_) {
    Py_VISIT(each.ptr());
  }
  return 0;
}

void Gate::clear() {
  watch_ = nullptr;
  const auto held = std::move(held_);
}

}  // namespace airgraph
