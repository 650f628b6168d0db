#include "cache_bindings.h"

#include <torch/extension.h>

#include <array>
#include <utility>

#include "call_reader.h"
#include "observer.h"
#include "set_back.h"
#include "settled.h"
#include "watch.h"

namespace py = pybind11;

namespace airgraph {
namespace {

template <class Held>
Held* held_by(PyObject* self) {
  auto held = reinterpret_cast<py::detail::instance*>(self)->get_value_and_holder();
  return held.holder_constructed() ? static_cast<Held*>(held.value_ptr()) : nullptr;
}

// What it holds usually leads back to it.
template <class Held>
void collect(PyHeapTypeObject* heap_type) {
  auto& type = heap_type->ht_type;
  type.tp_flags |= Py_TPFLAGS_HAVE_GC;
  type.tp_traverse = [](PyObject* self, visitproc visit, void* arg) {
    Py_VISIT(Py_TYPE(self));
    const auto* held = held_by<Held>(self);
    return held == nullptr ? 0 : held->traverse(visit, arg);
  };
  type.tp_clear = [](PyObject* self) {
    if (auto* held = held_by<Held>(self)) {
      held->clear();
    }
    return 0;
  };
}

// One look at all that a call depends on.
class Gate {
 public:
  Gate(py::object watch, py::object settled, py::object reader)
      : watch_(watch.cast<Watch*>()),
        settled_(settled.cast<const Settled*>()),
        reader_(reader.cast<CallReader*>()),
        held_{std::move(watch), std::move(settled), std::move(reader)} {}

  // The graph's arguments; None where a condition on the call does not hold; False where something else has changed.
  py::object read(const py::tuple& values) {
    if (watch_ == nullptr || watch_->changed() || !settled_->unchanged()) {
      return py::bool_(false);
    }
    return reader_->read(values);
  }

  int traverse(visitproc visit, void* arg) const {
    for (const auto& each : held_) {
      Py_VISIT(each.ptr());
    }
    return 0;
  }

  void clear() {
    watch_ = nullptr;
    const auto held = std::move(held_);
  }

 private:
  Watch* watch_;
  const Settled* settled_;
  CallReader* reader_;
  std::array<py::object, 3> held_;
};

}  // namespace

void bind_cache(py::module_& m) {
  py::class_<Watch>(m, "Watch", py::custom_type_setup(&collect<Watch>))
      .def(py::init<const py::tuple&, const py::tuple&, const py::tuple&, const py::tuple&, const py::tuple&,
                    const py::tuple&, const py::tuple&, const py::tuple&, const py::tuple&, const py::tuple&,
                    const py::tuple&>(),
           py::arg("items"), py::arg("lengths"), py::arg("absent"), py::arg("keys"), py::arg("attributes"),
           py::arg("types"), py::arg("class_items"), py::arg("class_absent"), py::arg("functions") = py::tuple(),
           py::arg("whole_classes") = py::tuple(), py::arg("cells") = py::tuple())
      .def("changed", &Watch::changed)
      .def_property_readonly("dicts_compared", &Watch::dicts_compared);

  py::class_<CallReader>(m, "CallReader", py::custom_type_setup(&collect<CallReader>))
      .def(py::init<size_t, const py::list&, py::list>())
      .def("read", &CallReader::read);

  py::class_<Settled>(m, "Settled")
      .def(py::init<py::dict>())
      .def("settle", &Settled::settle)
      .def("unchanged", &Settled::unchanged);

  py::class_<Gate>(m, "Gate", py::custom_type_setup(&collect<Gate>))
      .def(py::init<py::object, py::object, py::object>(), py::arg("watch"), py::arg("settled"), py::arg("reader"))
      .def("read", &Gate::read);

  py::class_<Observer>(m, "Observer")
      .def(py::init<const py::list&, const py::list&, const py::list&, py::object>(), py::arg("watched"),
           py::arg("passed_over"), py::arg("built_in"), py::arg("on_built_in"))
      .def("__enter__", &Observer::install)
      .def("__exit__", [](Observer& self, const py::args&) { self.remove(); })
      .def("seen", &Observer::seen);

  py::class_<SetBack>(m, "SetBack")
      .def(py::init<>())
      .def("keep", &SetBack::keep)
      .def("__enter__", [](const py::object& self) { return self; })
      .def("__exit__", [](SetBack& self, const py::args&) { self.set_back(); });
}

}  // namespace airgraph
