#include "front.h"

#include "../internals/member.h"
#include "door.h"
#include "quick_call.h"

namespace airgraph {

namespace py = pybind11;

namespace {

// Of a class: it looks `__call__` up.
ternaryfunc call_in_python = nullptr;

// Of an object whose entries are as they should be; null, without an error, where there is none.
py::object door_of(PyObject* self, PyObject* args) {
  static Member arity_member("_plain_arity"), entries_member("_entries"), door_member("door");
  static PyObject* const type = py::type::of<Door>().release().ptr();
  const auto arity = arity_member.of(self);
  const auto entries = arity ? entries_member.of(self) : arity;
  py::object door;
  if (entries && PyLong_Check(arity.ptr()) && PyLong_AsSsize_t(arity.ptr()) == PyTuple_GET_SIZE(args) &&
      PyTuple_Check(entries.ptr()) && PyTuple_GET_SIZE(entries.ptr()) != 0) {
    door = door_member.of(PyTuple_GET_ITEM(entries.ptr(), 0));
  }
  PyErr_Clear();
  return door && reinterpret_cast<PyObject*>(Py_TYPE(door.ptr())) == type ? door : py::object();
}

PyObject* call(PyObject* self, PyObject* args, PyObject* kwargs) {
  if (kwargs == nullptr || PyDict_GET_SIZE(kwargs) == 0) {
    const auto door = door_of(self, args);
    auto* const held = door ? held_by<Door>(door.ptr()) : nullptr;
    if (held != nullptr) {
      try {
        auto result = (*held)(args);
        static PyObject* const otherwise = PyUnicode_InternFromString("_without_door");
        return held->is_miss(result) ? PyObject_CallMethodOneArg(self, otherwise, args) : result.release().ptr();
      } catch (abi::__forced_unwind&) {
        // Of a thread that ends here, as Python ends with it.
        throw;
      } catch (...) {
        set_error(std::current_exception());
        return nullptr;
      }
    }
  }
  return call_in_python(self, args, kwargs);
}

}  // namespace

void call_by_door(const py::type& of, py::handle own) {
  auto* const type = reinterpret_cast<PyTypeObject*>(of.ptr());
  static PyObject* const name = PyUnicode_InternFromString("__call__");
  if (type->tp_call == &call || PyDict_GetItemWithError(type->tp_dict, name) != own.ptr()) {
    PyErr_Clear();
    return;
  }
  // The same for every class that says in Python how its objects are called.
  call_in_python = type->tp_call;
  type->tp_call = &call;
  PyType_Modified(type);
}

}  // namespace airgraph
