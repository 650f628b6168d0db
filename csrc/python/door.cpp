#include "door.h"

#include "../internals/member.h"
#include "quick_call.h"

#include <c10/util/SmallVector.h>

#include <array>
#include <exception>
#include <utility>

namespace airgraph {

namespace py = pybind11;

namespace {

// Where calls take turns, none is like the one before: after so many misses in a row, only one call in so many is
// tried.
constexpr size_t kManyMisses = 4;
constexpr size_t kSeldom = 8;

py::object checked(PyObject* made) {
  if (made == nullptr) {
    throw py::error_already_set();
  }
  return py::reinterpret_steal<py::object>(made);
}

py::object attribute(PyObject* owner, Member& member) {
  auto found = member.of(owner);
  if (!found) {
    throw py::error_already_set();
  }
  return found;
}

// Raises what the capture makes of the error that is set, in the user's terms, and the error as its cause.
[[noreturn]] void raise_explained(const py::object& usual) {
  py::error_already_set failure;
  const auto explained = usual.attr("explained")(failure.value());
  if (explained.is(failure.value())) {
    throw failure;
  }
  PyException_SetCause(explained.ptr(), failure.value().inc_ref().ptr());
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(explained.ptr())), explained.ptr());
  throw py::error_already_set();
}

}  // namespace

// The list of one call: the door's own, unless another call has it, from code that is run on the way or from another
// thread. The arguments that came with the call are let go of at the end.
class Door::List {
 public:
  List(Door& door, const CallReader& reader)
      : door_(door),
        reader_(reader),
        is_doors_(!door.is_list_taken_),
        list_(is_doors_ ? own(door, reader) : reader.new_arguments()) {
    door.is_list_taken_ = true;
  }
  List(const List&) = delete;
  List& operator=(const List&) = delete;
  ~List() {
    if (is_doors_) {
      reader_.forget_call(list_);
      door_.is_list_taken_ = false;
    }
  }

  const py::list& operator*() const { return list_; }

 private:
  static py::list own(Door& door, const CallReader& reader) {
    if (door.list_.is_none()) {
      door.list_ = reader.new_arguments();
    }
    return py::reinterpret_borrow<py::list>(door.list_);
  }

  Door& door_;
  const CallReader& reader_;
  const bool is_doors_;
  const py::list list_;
};

Door::Door(py::object gate, py::object callable, py::object build, py::object miss, const Door* follows)
    : gate_(gate.cast<Gate*>()),
      kept_(gate_->reader()),
      list_(py::none()),
      calls_(follows == nullptr ? std::make_shared<size_t>(0) : follows->calls_),
      held_(std::move(gate)),
      callable_(std::move(callable)),
      build_(std::move(build)),
      miss_(std::move(miss)),
      sole_(PyLong_Check(build_.ptr()) ? build_.cast<Py_ssize_t>() : -1) {}

py::object Door::replay(const py::object& usual, py::handle values) {
  static Member call_member("call");
  // Never given back: it may be asked when Python's objects are gone.
  static PyObject* const type = py::type::of<UsualCall>().release().ptr();
  const auto call = attribute(usual.ptr(), call_member);
  auto* const held =
      reinterpret_cast<PyObject*>(Py_TYPE(call.ptr())) == type ? held_by<UsualCall>(call.ptr()) : nullptr;
  if (held == nullptr) {
    throw py::type_error("expected a UsualCall");
  }
  auto* const reader = gate_->reader();
  const List list(*this, *reader);
  if (!reader->read_into(py::reinterpret_borrow<py::tuple>(values), *list)) {
    return py::none();
  }
  try {
    return (*held)(*list, &kept_);
  } catch (abi::__forced_unwind&) {
    throw;
  } catch (...) {
    set_error(std::current_exception());
    raise_explained(usual);
  }
}

py::object Door::operator()(py::handle values) {
  static Member usual_member("usual");
  if (misses_ >= kManyMisses && ++passed_by_ % kSeldom != 0) {
    return miss_;
  }
  py::object outputs = py::none();
  if (gate_ != nullptr && !gate_->has_changed()) {
    const auto usual = attribute(callable_.ptr(), usual_member);
    outputs = usual.is_none() ? usual : replay(usual, values);
  }
  if (outputs.is_none()) {
    ++misses_;
    return miss_;
  }
  misses_ = 0;
  ++*calls_;
  if (sole_ >= 0) {
    return checked(PySequence_GetItem(outputs.ptr(), sole_));
  }
  c10::SmallVector<PyObject*, 8> given{outputs.ptr()};
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(values.ptr()); ++i) {
    given.push_back(PyTuple_GET_ITEM(values.ptr(), i));
  }
  return checked(PyObject_Vectorcall(build_.ptr(), given.data(), given.size(), nullptr));
}

py::object Door::called(py::handle args) {
  PyObject* values = nullptr;
  if (PyArg_UnpackTuple(args.ptr(), "Door", 1, 1, &values) == 0) {
    throw py::error_already_set();
  }
  if (!PyTuple_Check(values)) {
    throw py::type_error("expected a tuple of values");
  }
  return (*this)(values);
}

int Door::traverse(visitproc visit, void* arg) const {
  for (const auto* each : {&list_, &held_, &callable_, &build_, &miss_}) {
    Py_VISIT(each->ptr());
  }
  return 0;
}

void Door::clear() {
  gate_ = nullptr;
  // Moved out first: what is released may run Python code that comes back here.
  const std::array released{std::move(list_), std::move(held_), std::move(callable_), std::move(build_)};
}

}  // namespace airgraph
