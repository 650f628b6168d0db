#include "reader_instruction.h"

#include <ATen/ScalarOps.h>
#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/autograd/python_variable.h>

#include <array>
#include <cmath>
#include <string>

#include "../internals/dict_version.h"
#include "../internals/tensors.h"

namespace airgraph::reading {
namespace {

namespace py = pybind11;

constexpr std::array<const char*, 25> kNames = {
    "attribute", "item", "type",   "is",       "same",    "apart",  "among", "of_class", "equals",
    "length",    "has",  "lacks",  "inherits", "exactly", "keyed",  "holds", "tensor",   "kept",
    "number",    "size", "stride", "offset",   "float",   "object", "formed"};

PyObject* own_attributes() {
  static PyObject* const name = PyUnicode_InternFromString("__dict__");
  return name;
}

// Its `__dict__`; nothing, with an error set, if it has none.
py::object own_attributes_of(PyObject* value) {
#if PY_VERSION_HEX < 0x030D0000
  if (PyObject* const held = dict_of(value); held != nullptr) {
    return py::reinterpret_borrow<py::object>(held);
  }
#endif
  return py::reinterpret_steal<py::object>(PyObject_GetAttr(value, own_attributes()));
}

PyObject* read_item(PyObject* owner, PyObject* key, size_t index) {
  if (PyList_CheckExact(owner) && index < static_cast<size_t>(PyList_GET_SIZE(owner))) {
    return Py_NewRef(PyList_GET_ITEM(owner, static_cast<Py_ssize_t>(index)));
  }
  if (PyDict_Check(owner)) {
    // Of a dict the entry, whatever its class makes of it.
    PyObject* found = PyDict_GetItemWithError(owner, key);
    if (found == nullptr && PyErr_Occurred() == nullptr) {
      PyErr_SetObject(PyExc_KeyError, key);
    }
    Py_XINCREF(found);
    return found;
  }
  return PyObject_GetItem(owner, key);
}

// A key as a position in a list; of another one, a position that no list has.
size_t index_of(PyObject* key) {
  const auto index = PyLong_CheckExact(key) ? PyLong_AsSsize_t(key) : -1;
  PyErr_Clear();
  return static_cast<size_t>(index);
}

size_t position(const py::tuple& parts, size_t index, size_t count, const char* what) {
  const auto found = parts[index].cast<size_t>();
  if (found >= count) {
    throw py::index_error(std::string("no such ") + what);
  }
  return found;
}

bool are_equal(c10::IntArrayRef sizes, PyObject* expected) {
  if (static_cast<size_t>(PyTuple_GET_SIZE(expected)) != sizes.size()) {
    return false;
  }
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (PyLong_AsLongLong(PyTuple_GET_ITEM(expected, static_cast<Py_ssize_t>(i))) != sizes[i]) {
      return false;
    }
  }
  return true;
}

// form: a tuple of dtype, sizes and strides.
bool has_form(const at::Tensor& tensor, PyObject* form) {
  const auto* const dtype = reinterpret_cast<PyObject*>(torch::getTHPDtype(tensor.scalar_type()));
  return dtype == PyTuple_GET_ITEM(form, 0) && are_equal(tensor.sizes(), PyTuple_GET_ITEM(form, 1)) &&
         are_equal(tensor.strides(), PyTuple_GET_ITEM(form, 2));
}

Traits traits_of(const py::tuple& parts, size_t index) {
  return {parts[index].cast<bool>(), parts[index + 1].cast<bool>(), parts[index + 2].cast<uint64_t>()};
}

}  // namespace

Kind kind_of(const py::tuple& parts) {
  const auto name = parts[0].cast<std::string>();
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (name == kNames.at(i)) {
      return static_cast<Kind>(i);
    }
  }
  throw py::value_error("no such instruction: " + name);
}

Kept kept_of(const py::tuple& parts, const py::list& arguments) {
  const size_t place = position(parts, 1, arguments.size(), "argument");
  PyObject* const tensor = PyList_GET_ITEM(arguments.ptr(), static_cast<Py_ssize_t>(place));
  if (!THPVariable_Check(tensor)) {
    throw py::type_error("expected a tensor");
  }
  const auto* const impl = impl_of(THPVariable_Unpack(tensor));
  return {
      place, tensor, reinterpret_cast<PyTypeObject*>(parts[2].ptr()), impl, impl->autograd_meta(), traits_of(parts, 3)};
}

Instruction instruction_of(const py::tuple& parts, size_t& slots, size_t arguments) {
  Instruction made;
  made.kind = kind_of(parts);
  const auto number = [&parts](size_t index) { return parts[index].cast<size_t>(); };
  const auto slot = [&](size_t index) { return position(parts, index, slots, "slot"); };
  const auto place = [&](size_t index) { return position(parts, index, arguments, "argument"); };
  switch (made.kind) {
    case Kind::tensor:
      made.slot = slot(1);
      made.place = place(2);
      made.held = parts[3];
      made.traits = traits_of(parts, 4);
      break;
    case Kind::formed:
      made.slot = slot(1);
      made.held = parts[2];
      made.traits = traits_of(parts, 3);
      break;
    case Kind::same:
    case Kind::apart:
      made.slot = slot(1);
      made.number = slot(2);
      break;
    case Kind::length:
      made.slot = slot(1);
      made.number = number(2);
      break;
    case Kind::number:
    case Kind::offset:
    case Kind::real:
      made.slot = slot(1);
      made.place = place(2);
      break;
    case Kind::size:
    case Kind::stride:
      made.slot = slot(1);
      made.number = number(2);
      made.place = place(3);
      break;
    case Kind::type:
      made.slot = slot(1);
      ++slots;
      break;
    case Kind::attribute:
      made.slot = slot(1);
      made.held = parts[2];
      made.place = slots++;
      break;
    case Kind::item:
      made.slot = slot(1);
      made.held = parts[2];
      made.number = index_of(made.held.ptr());
      ++slots;
      break;
    case Kind::object:
      made.held = parts[1];
      ++slots;
      break;
    default:
      made.slot = slot(1);
      made.held = parts[2];
  }
  return made;
}

bool may_run_code(const Instruction& each, const Slots& slots) {
  switch (each.kind) {
    case Kind::type:
    case Kind::is:
    case Kind::same:
    case Kind::apart:
    case Kind::among:
    case Kind::of_class:
    case Kind::tensor:
    case Kind::number:
    case Kind::size:
    case Kind::stride:
    case Kind::offset:
    case Kind::object:
    case Kind::formed:
      return false;
    case Kind::item:
    case Kind::length:
      return PyList_CheckExact(slots[each.slot]) == 0;
    default:
      return true;
  }
}

bool can_be_remembered(const Instruction& each, const Slots& slots) {
  switch (each.kind) {
    case Kind::attribute:
      return AttributeMemo::is_attribute(slots[each.slot], each.held.ptr(), slots.last().value);
    case Kind::has:
    case Kind::lacks:
      return AttributeMemo::decides_presence(slots[each.slot], each.held.ptr(), each.kind == Kind::has);
    case Kind::inherits:
    case Kind::exactly:
    case Kind::of_class:
    case Kind::is:
    case Kind::equals:
      return true;
    default:
      return false;
  }
}

std::optional<bool> run(const Instruction& each, Slots& slots, PyObject* made) {
  const auto put = [&](PyObject* value) -> std::optional<bool> {
    if (value == nullptr) {
      return std::nullopt;
    }
    PyList_SetItem(made, static_cast<Py_ssize_t>(each.place), value);
    return true;
  };
  const auto push = [&](PyObject* value) -> std::optional<bool> {
    if (value == nullptr) {
      return std::nullopt;
    }
    slots.push(value);
    return true;
  };
  const auto answered = [](int answer) -> std::optional<bool> {
    return answer < 0 ? std::nullopt : std::optional<bool>(answer != 0);
  };
  if (each.kind == Kind::object) {
    return push(Py_NewRef(each.held.ptr()));
  }
  PyObject* value = slots[each.slot];
  switch (each.kind) {
    case Kind::attribute:
      return push(PyObject_GetAttr(value, each.held.ptr()));
    case Kind::item:
      return push(read_item(value, each.held.ptr(), each.number));
    case Kind::type:
      return push(Py_NewRef(reinterpret_cast<PyObject*>(Py_TYPE(value))));
    case Kind::is:
      return value == each.held.ptr();
    case Kind::same:
      return value == slots[each.number];
    case Kind::apart:
      return value != slots[each.number];
    case Kind::among:
      for (const auto& other : py::reinterpret_borrow<py::tuple>(each.held)) {
        if (other.ptr() == value) {
          return false;
        }
      }
      return true;
    case Kind::of_class:
      return reinterpret_cast<PyObject*>(Py_TYPE(value)) == each.held.ptr();
    case Kind::equals:
      if (Py_TYPE(value) != Py_TYPE(each.held.ptr())) {
        return false;
      }
      return value == each.held.ptr() ? std::optional<bool>(true)
                                      : answered(PyObject_RichCompareBool(value, each.held.ptr(), Py_EQ));
    case Kind::length: {
      const auto length = PyObject_Size(value);
      return length < 0 ? std::nullopt : std::optional<bool>(static_cast<size_t>(length) == each.number);
    }
    case Kind::has:
    case Kind::lacks: {
      const auto found = py::reinterpret_steal<py::object>(PyObject_GetAttr(value, each.held.ptr()));
      if (!found && PyErr_ExceptionMatches(PyExc_AttributeError) == 0) {
        return std::nullopt;
      }
      PyErr_Clear();
      return static_cast<bool>(found) == (each.kind == Kind::has);
    }
    case Kind::inherits: {
      const auto own = own_attributes_of(value);
      if (!own) {
        return std::nullopt;
      }
      const int found = PySequence_Contains(own.ptr(), each.held.ptr());
      return found < 0 ? std::nullopt : std::optional<bool>(found == 0);
    }
    case Kind::exactly: {
      const auto own = own_attributes_of(value);
      if (!own) {
        return std::nullopt;
      }
      return PyDict_Check(own.ptr()) != 0 && has_keys(own.ptr(), each.held.ptr());
    }
    case Kind::keyed:
      return PyDict_Check(value) != 0 && has_keys(value, each.held.ptr());
    case Kind::holds: {
      const auto answer = py::reinterpret_steal<py::object>(PyObject_CallOneArg(each.held.ptr(), value));
      return answer ? answered(PyObject_IsTrue(answer.ptr())) : std::nullopt;
    }
    case Kind::tensor:
      if (reinterpret_cast<PyObject*>(Py_TYPE(value)) != each.held.ptr() || !THPVariable_Check(value) ||
          !has_traits(THPVariable_Unpack(value), each.traits)) {
        return false;
      }
      return put(Py_NewRef(value));
    case Kind::formed:
      return THPVariable_Check(value) && has_traits(THPVariable_Unpack(value), each.traits) &&
             has_form(THPVariable_Unpack(value), each.held.ptr());
    case Kind::number:
      return PyLong_CheckExact(value) ? put(Py_NewRef(value)) : std::optional<bool>(false);
    case Kind::real:
      // The graph was traced for floats that equal themselves.
      if (!PyFloat_CheckExact(value) || std::isnan(PyFloat_AS_DOUBLE(value))) {
        return false;
      }
      return put(THPVariable_Wrap(c10::scalar_to_tensor(PyFloat_AS_DOUBLE(value))));
    case Kind::size:
    case Kind::stride:
    case Kind::offset: {
      if (!THPVariable_Check(value)) {
        return false;
      }
      const at::Tensor& tensor = THPVariable_Unpack(value);
      if (each.kind == Kind::offset) {
        return put(PyLong_FromLongLong(tensor.storage_offset()));
      }
      const auto sizes = each.kind == Kind::size ? tensor.sizes() : tensor.strides();
      return each.number < sizes.size() ? put(PyLong_FromLongLong(sizes[each.number])) : std::optional<bool>(false);
    }
    case Kind::kept:
    case Kind::object:
      break;
  }
  return false;
}

}  // namespace airgraph::reading
