#include "call_reader.h"

#include <ATen/ScalarOps.h>
#include <c10/util/SmallVector.h>
#include <torch/csrc/autograd/python_variable.h>

#include <array>
#include <cmath>
#include <string>
#include <utility>

namespace airgraph {
namespace {

namespace py = pybind11;

constexpr std::array<const char*, 22> kNames = {
    "attribute", "item",   "type", "is",    "same",     "apart", "among",  "of_class", "equals", "length",
    "has",       "lacks", "inherits", "holds", "tensor", "kept",  "number", "size",     "stride", "offset",
    "float", "object"};

// What a missing value raises, or code of the user's on the way; the call is not served then. No interrupt.
bool is_missing() { return PyErr_ExceptionMatches(PyExc_Exception) != 0; }

PyObject* own_attributes() {
  static PyObject* const name = PyUnicode_InternFromString("__dict__");
  return name;
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

}  // namespace

// References to the values of one call, and what is remembered of them.
class CallReader::Slots {
 public:
  struct Slot {
    // Nothing where all that is asked of it is known.
    PyObject* value = nullptr;
    // By which what is asked of its class and attributes is known, and by which it is learned.
    int way = AttributeMemo::kNone, learning = AttributeMemo::kNone;
    // When that was so, see `ran_code`.
    size_t looked_at = 0;
    // The same of the object that it is an attribute of.
    int owners_way = AttributeMemo::kNone, owners_learning = AttributeMemo::kNone;
  };

  explicit Slots(size_t count) : slots_(count) {}
  Slots(const Slots&) = delete;
  Slots& operator=(const Slots&) = delete;
  ~Slots() {
    for (size_t i = 0; i < filled_; ++i) {
      Py_XDECREF(slots_[i].value);
    }
  }

  PyObject* operator[](size_t index) const { return slots_[index].value; }
  Slot& at(size_t index) { return slots_[index]; }
  size_t count() const { return filled_; }
  Slot& last() { return slots_[filled_ - 1]; }
  const Slot& last() const { return slots_[filled_ - 1]; }
  void borrow(PyObject* value) { push(Py_NewRef(value)); }
  // An instruction may have run code of anybody's, here or in another thread, which changes any object.
  void ran_code() { ++code_ran_; }
  size_t code_ran() const { return code_ran_; }
  void push(PyObject* value) { slots_[filled_++].value = value; }

 private:
  c10::SmallVector<Slot, 64> slots_;
  size_t filled_ = 0, code_ran_ = 0;
};

// Whether this call may remember: no other one is on its way.
class CallReader::Turn {
 public:
  explicit Turn(bool& is_reading) : is_reading_(is_reading), is_first_(!is_reading) { is_reading_ = true; }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  ~Turn() {
    if (is_first_) {
      is_reading_ = false;
    }
  }

  bool is_first() const { return is_first_; }

 private:
  bool& is_reading_;
  const bool is_first_;
};

CallReader::Kind CallReader::kind_of(const std::string& name) {
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (name == kNames.at(i)) {
      return static_cast<Kind>(i);
    }
  }
  throw py::value_error("no such instruction: " + name);
}

CallReader::CallReader(size_t parameters, const py::list& instructions, py::list arguments)
    : parameters_(parameters), slots_(parameters), arguments_(std::move(arguments)) {
  for (const auto& given : instructions) {
    const auto parts = py::cast<py::tuple>(given);
    Instruction made;
    made.kind = kind_of(parts[0].cast<std::string>());
    const auto number = [&parts](size_t index) { return parts[index].cast<size_t>(); };
    const auto slot = [&](size_t index) {
      const size_t found = number(index);
      if (found >= slots_) {
        throw py::index_error("no such slot");
      }
      return found;
    };
    const auto place = [&](size_t index) {
      const size_t found = number(index);
      if (found >= arguments_.size()) {
        throw py::index_error("no such argument");
      }
      return found;
    };
    const auto traits = [&parts](size_t index) {
      return Traits{parts[index].cast<bool>(), parts[index + 1].cast<bool>(), parts[index + 2].cast<uint64_t>()};
    };
    switch (made.kind) {
      case Kind::kept: {
        PyObject* const tensor = PyList_GET_ITEM(arguments_.ptr(), static_cast<Py_ssize_t>(place(1)));
        if (!THPVariable_Check(tensor)) {
          throw py::type_error("expected a tensor");
        }
        const auto* const impl = THPVariable_Unpack(tensor).unsafeGetTensorImpl();
        kept_.push_back({tensor, reinterpret_cast<PyTypeObject*>(parts[2].ptr()), impl, impl->autograd_meta(), traits(3)});
        continue;
      }
      case Kind::tensor:
        made.slot = slot(1);
        made.place = place(2);
        made.held = parts[3];
        made.traits = traits(4);
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
        ++slots_;
        break;
      case Kind::attribute:
        made.slot = slot(1);
        made.held = parts[2];
        made.place = slots_++;
        break;
      case Kind::item:
        made.slot = slot(1);
        made.held = parts[2];
        made.number = index_of(made.held.ptr());
        ++slots_;
        break;
      case Kind::object:
        made.held = parts[1];
        ++slots_;
        break;
      default:
        made.slot = slot(1);
        made.held = parts[2];
    }
    instructions_.push_back(std::move(made));
  }
  plan_memory();
}

void CallReader::plan_memory() {
  memo_of_slot_.assign(slots_, kNoMemo);
  std::vector<bool> is_more_than_compared(slots_, false);
  for (const auto& each : instructions_) {
    const bool is_of_attributes = each.kind == Kind::attribute || each.kind == Kind::has || each.kind == Kind::lacks ||
                                  each.kind == Kind::inherits;
    if (is_of_attributes && memo_of_slot_[each.slot] == kNoMemo) {
      memo_of_slot_[each.slot] = memos_.size();
      memos_.emplace_back();
    }
    if (!is_of_value(each.kind) && each.kind != Kind::object) {
      is_more_than_compared[each.slot] = true;
    }
    if (each.kind == Kind::same || each.kind == Kind::apart) {
      is_more_than_compared[each.number] = true;
    }
  }
  for (auto& each : instructions_) {
    each.is_needed = each.kind != Kind::attribute || is_more_than_compared[each.place];
  }
}

bool CallReader::has_traits(const at::Tensor& tensor, const Traits& traits) {
  return tensor.requires_grad() == traits.requires_grad && tensor.key_set().raw_repr() == traits.keys &&
         (!traits.requires_grad || tensor.is_leaf() == traits.is_leaf);
}

// A replay has driven them out of the caches, so some are asked for ahead.
bool CallReader::are_kept_as_they_were() const {
  constexpr size_t ahead = 6;
  const size_t count = kept_.size();
  for (size_t i = 0; i < count; ++i) {
    if (i + ahead < count) {
      const auto& later = kept_[i + ahead];
      __builtin_prefetch(later.tensor);
      __builtin_prefetch(later.impl);
      // Its dispatch keys.
      __builtin_prefetch(static_cast<const char*>(later.impl) + 128);
      __builtin_prefetch(later.autograd);
    }
    const auto& each = kept_[i];
    // Its class can be assigned to, but for another one of tensors.
    if (Py_TYPE(each.tensor) != each.type || !has_traits(THPVariable_Unpack(each.tensor), each.traits)) {
      return false;
    }
  }
  return true;
}

py::object CallReader::read(const py::tuple& values) {
  if (cleared_) {
    return py::none();
  }
  if (values.size() != parameters_) {
    throw py::type_error("another number of arguments");
  }
  if (!are_kept_as_they_were()) {
    return py::none();
  }
  const Turn turn(is_reading_);
  if (turn.is_first()) {
    for (const auto& memo : memos_) {
      memo.fetch_ahead();
    }
  }
  auto made = py::reinterpret_steal<py::list>(
      PyList_GetSlice(arguments_.ptr(), 0, PyList_GET_SIZE(arguments_.ptr())));
  if (!made) {
    throw py::error_already_set();
  }
  Slots slots(slots_);
  for (size_t i = 0; i < parameters_; ++i) {
    slots.borrow(PyTuple_GET_ITEM(values.ptr(), static_cast<Py_ssize_t>(i)));
    if (turn.is_first()) {
      recall(i, slots);
    }
  }
  const auto holds = run_all(slots, made.ptr(), turn.is_first());
  if (!holds) {
    if (!is_missing()) {
      throw py::error_already_set();
    }
    PyErr_Clear();
  }
  if (!holds || !*holds) {
    return py::none();
  }
  for (size_t i = 0; i < slots.count(); ++i) {
    if (const int way = slots.at(i).learning; way != AttributeMemo::kNone) {
      memos_[memo_of_slot_[i]].learned(way);
    }
  }
  return made;
}

void CallReader::recall(size_t index, Slots& slots) {
  if (const auto number = memo_of_slot_[index]; number != kNoMemo) {
    auto& slot = slots.at(index);
    slot.looked_at = slots.code_ran();
    slot.way = memos_[number].find(slot.value);
    slot.learning = slot.way == AttributeMemo::kNone ? memos_[number].begin(slot.value) : AttributeMemo::kNone;
  }
}

std::optional<bool> CallReader::run_all(Slots& slots, PyObject* made, bool remembers) {
  for (auto& each : instructions_) {
    const bool is_of_value = CallReader::is_of_value(each.kind);
    const auto count = slots.count();
    if (each.kind != Kind::object) {
      auto& slot = slots.at(each.slot);
      if (slot.way != AttributeMemo::kNone && slot.looked_at != slots.code_ran()) {
        slot.looked_at = slots.code_ran();
        if (memos_[memo_of_slot_[each.slot]].find(slot.value) != slot.way) {
          slot.way = AttributeMemo::kNone;
        }
      }
      const int way = is_of_value ? slot.owners_way : slot.way;
      if (way != AttributeMemo::kNone && each.answers.at(static_cast<size_t>(way)).is_known) {
        if (each.kind == Kind::attribute) {
          slots.push(each.is_needed ? Py_NewRef(each.answers.at(static_cast<size_t>(way)).value) : nullptr);
          slots.last().owners_way = way;
          if (each.is_needed) {
            recall(count, slots);
          }
        }
        continue;
      }
    }
    const auto holds = run(each, slots, made);
    if (!holds || !*holds) {
      return holds;
    }
    if (may_run_code(each, slots)) {
      slots.ran_code();
    }
    if (each.kind != Kind::object) {
      const auto& slot = slots.at(each.slot);
      const int learning = is_of_value ? slot.owners_learning : slot.learning;
      if (learning != AttributeMemo::kNone) {
        const bool is_known = can_be_remembered(each, slots);
        const bool is_attribute = each.kind == Kind::attribute;
        each.answers.at(static_cast<size_t>(learning)) = {is_known, is_attribute ? slots.last().value : nullptr};
        if (is_known && is_attribute) {
          slots.last().owners_learning = learning;
        }
      }
    }
    if (remembers && slots.count() != count) {
      recall(count, slots);
    }
  }
  return true;
}

bool CallReader::may_run_code(const Instruction& each, const Slots& slots) {
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
      return false;
    case Kind::item:
    case Kind::length:
      return PyList_CheckExact(slots[each.slot]) == 0;
    default:
      return true;
  }
}

bool CallReader::can_be_remembered(const Instruction& each, const Slots& slots) {
  switch (each.kind) {
    case Kind::attribute:
      return AttributeMemo::is_attribute(slots[each.slot], each.held.ptr(), slots.last().value);
    case Kind::has:
    case Kind::lacks:
      return AttributeMemo::decides_presence(slots[each.slot], each.held.ptr(), each.kind == Kind::has);
    case Kind::inherits:
    case Kind::of_class:
    case Kind::is:
    case Kind::equals:
      return true;
    default:
      return false;
  }
}

std::optional<bool> CallReader::run(const Instruction& each, Slots& slots, PyObject* made) {
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
#if PY_VERSION_HEX < 0x030D0000
      if (PyObject** const held = _PyObject_GetDictPtr(value); held != nullptr && *held != nullptr) {
        const int found = PyDict_Contains(*held, each.held.ptr());
        return found < 0 ? std::nullopt : std::optional<bool>(found == 0);
      }
#endif
      const auto own = py::reinterpret_steal<py::object>(PyObject_GetAttr(value, own_attributes()));
      if (!own) {
        return std::nullopt;
      }
      const int found = PySequence_Contains(own.ptr(), each.held.ptr());
      return found < 0 ? std::nullopt : std::optional<bool>(found == 0);
    }
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
    case Kind::number:
      return PyLong_CheckExact(value) ? put(Py_NewRef(value)) : std::optional<bool>(false);
    case Kind::real:
      // The graph was traced for floats that equal themselves.
      if (!PyFloat_CheckExact(value) || std::isnan(PyFloat_AS_DOUBLE(value))) {
        return false;
      }
      return put(THPVariable_Wrap(at::detail::scalar_tensor_static(PyFloat_AS_DOUBLE(value), at::kDouble, at::kCPU)));
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

int CallReader::traverse(visitproc visit, void* arg) const {
  for (const auto& each : instructions_) {
    Py_VISIT(each.held.ptr());
  }
  for (const auto& memo : memos_) {
    if (const int stop = memo.traverse(visit, arg); stop != 0) {
      return stop;
    }
  }
  Py_VISIT(arguments_.ptr());
  return 0;
}

void CallReader::clear() {
  // Moved out first: what is released may run Python code that comes back here.
  const auto instructions = std::move(instructions_);
  const auto arguments = std::move(arguments_);
  const auto memos = std::move(memos_);
  cleared_ = true;
}

}  // namespace airgraph
