#include "call_reader.h"

#include <torch/csrc/autograd/python_variable.h>

#include <utility>

namespace airgraph {
namespace {

namespace py = pybind11;
using reading::Instruction;
using reading::Kind;
using reading::Slots;

// What a missing value raises, or code of the user's on the way; the call is not served then. No interrupt.
bool is_missing() { return PyErr_ExceptionMatches(PyExc_Exception) != 0; }

}  // namespace

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

CallReader::CallReader(size_t parameters, const py::list& instructions, py::list arguments)
    : parameters_(parameters), slots_(parameters), arguments_(std::move(arguments)) {
  for (const auto& given : instructions) {
    const auto parts = py::cast<py::tuple>(given);
    if (reading::kind_of(parts) == Kind::kept) {
      kept_.push_back(reading::kept_of(parts, arguments_));
    } else {
      instructions_.push_back(reading::instruction_of(parts, slots_, arguments_.size()));
    }
  }
  for (Py_ssize_t place = 0; place < PyList_GET_SIZE(arguments_.ptr()); ++place) {
    if (PyList_GET_ITEM(arguments_.ptr(), place) == Py_None) {
      of_call_.push_back(place);
    }
  }
  plan_memory();
}

void CallReader::plan_memory() {
  memo_of_slot_.assign(slots_, kNoMemo);
  std::vector<bool> is_more_than_compared(slots_, false);
  for (const auto& each : instructions_) {
    const bool is_of_attributes = each.kind == Kind::attribute || each.kind == Kind::has || each.kind == Kind::lacks ||
                                  each.kind == Kind::inherits || each.kind == Kind::exactly;
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

// A replay has driven them out of the caches, so some are asked for ahead.
bool CallReader::are_kept_as_they_were() const {
  constexpr size_t ahead = 24;
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
    if (Py_TYPE(each.tensor) != each.type || !reading::has_traits(THPVariable_Unpack(each.tensor), each.traits)) {
      return false;
    }
  }
  return true;
}

py::object CallReader::read(const py::tuple& values) {
  if (cleared_ || !are_kept_as_they_were()) {
    return py::none();
  }
  auto made = new_arguments();
  return read_into(values, made) ? py::object(std::move(made)) : py::none();
}

py::list CallReader::new_arguments() const {
  auto made = py::reinterpret_steal<py::list>(PyList_GetSlice(arguments_.ptr(), 0, PyList_GET_SIZE(arguments_.ptr())));
  if (!made) {
    throw py::error_already_set();
  }
  return made;
}

void CallReader::forget_call(const py::list& made) const {
  for (const auto place : of_call_) {
    PyList_SetItem(made.ptr(), place, Py_NewRef(Py_None));
  }
}

bool CallReader::read_into(const py::tuple& values, const py::list& made) {
  if (cleared_) {
    return false;
  }
  if (values.size() != parameters_) {
    throw py::type_error("another number of arguments");
  }
  const Turn turn(is_reading_);
  if (turn.is_first()) {
    for (const auto& memo : memos_) {
      memo.fetch_ahead();
    }
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
    return false;
  }
  for (size_t i = 0; i < slots.count(); ++i) {
    if (const int way = slots.at(i).learning; way != AttributeMemo::kNone) {
      memos_[memo_of_slot_[i]].learned(way);
    }
  }
  return true;
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
    const bool is_of_value = reading::is_of_value(each.kind);
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
    const auto holds = reading::run(each, slots, made);
    if (!holds || !*holds) {
      return holds;
    }
    if (reading::may_run_code(each, slots)) {
      slots.ran_code();
    }
    if (each.kind != Kind::object) {
      const auto& slot = slots.at(each.slot);
      const int learning = is_of_value ? slot.owners_learning : slot.learning;
      if (learning != AttributeMemo::kNone) {
        const bool is_known = reading::can_be_remembered(each, slots);
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
