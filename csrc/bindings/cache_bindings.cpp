#include "cache_bindings.h"

#include <torch/csrc/utils/pybind.h>

#include "../cache/call_reader.h"
#include "../cache/gate.h"
#include "../cache/observer.h"
#include "../cache/set_back.h"
#include "../cache/settled.h"
#include "../cache/watch.h"
#include "../python/door.h"
#include "../python/front.h"
#include "../python/quick_call.h"

namespace py = pybind11;

namespace airgraph {
namespace {

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

}  // namespace

void bind_cache(py::module_& m) {
  py::class_<Watch>(m, "Watch", py::custom_type_setup(&collect<Watch>))
      .def(py::init<>())
      .def("add_item", &Watch::add_item)
      .def("add_length", &Watch::add_length)
      .def("add_absent", &Watch::add_absent)
      .def("add_keys", &Watch::add_keys)
      .def("add_attribute", &Watch::add_attribute)
      .def("add_type", &Watch::add_type)
      .def("add_class_item", &Watch::add_class_item)
      .def("add_class_absent", &Watch::add_class_absent)
      .def("add_class", &Watch::add_class)
      .def("add_function", &Watch::add_function)
      .def("add_cell", &Watch::add_cell)
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

  const auto set_up_door = [](PyHeapTypeObject* type) {
    collect<Door>(type);
    call_quickly<Door, &Door::called>(type);
  };
  py::class_<Door>(m, "Door", py::custom_type_setup(set_up_door))
      .def(py::init<py::object, py::object, py::object, py::object, const Door*>(), py::kw_only(), py::arg("gate"),
           py::arg("callable"), py::arg("build"), py::arg("miss"), py::arg("follows"))
      .def_property_readonly("calls", &Door::calls);
  m.def("call_by_door", &call_by_door, py::arg("of"), py::arg("own"));

  py::class_<Observer>(m, "Observer")
      .def(py::init<const py::list&, const py::list&, const py::list&, py::object, py::object, py::object>(),
           py::kw_only(), py::arg("watched"), py::arg("passed_over"), py::arg("built_in"), py::arg("on_built_in"),
           py::arg("on_first"), py::arg("is_own"))
      .def("__enter__", &Observer::install)
      .def("__exit__", [](Observer& self, const py::args&) { self.remove(); })
      .def("seen", &Observer::seen);

  py::class_<SetBack>(m, "SetBack")
      .def(py::init<>())
      .def("keep", &SetBack::keep)
      .def("keep_items", &SetBack::keep_items)
      .def("__enter__", [](const py::object& self) { return self; })
      .def("__exit__", [](SetBack& self, const py::args&) { self.set_back(); });
}

}  // namespace airgraph
