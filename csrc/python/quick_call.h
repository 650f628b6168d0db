// Calls of objects of the engine past pybind11's dispatcher, which takes longer than some of what is called.
#pragma once

#include <cxxabi.h>
#include <pybind11/pybind11.h>

#include <exception>

namespace airgraph {

// What an object of a bound class holds; null where its constructor was not run.
template <class Held>
Held* held_by(PyObject* self) {
  auto held = reinterpret_cast<pybind11::detail::instance*>(self)->get_value_and_holder();
  return held.holder_constructed() ? static_cast<Held*>(held.value_ptr()) : nullptr;
}

// Sets Python's error to what pybind11 makes of an exception.
void set_error(const std::exception_ptr& raised);

// Lets objects of a bound class be called: by `called`, a member that takes a tuple of arguments.
template <class Held, pybind11::object (Held::*called)(pybind11::handle)>
void call_quickly(PyHeapTypeObject* heap_type) {
  heap_type->ht_type.tp_call = [](PyObject* self, PyObject* args, PyObject* kwargs) -> PyObject* {
    auto* held = held_by<Held>(self);
    if (held == nullptr || (kwargs != nullptr && PyDict_GET_SIZE(kwargs) != 0)) {
      PyErr_SetString(PyExc_TypeError, "expected an object that was set up, and no arguments by name");
      return nullptr;
    }
    try {
      return (held->*called)(args).release().ptr();
    } catch (abi::__forced_unwind&) {
      // Of a thread that ends here, as Python ends with it.
      throw;
    } catch (...) {
      set_error(std::current_exception());
      return nullptr;
    }
  };
}

}  // namespace airgraph
