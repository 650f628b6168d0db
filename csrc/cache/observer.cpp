#include "observer.h"

#include <stdexcept>
#include <utility>

#include "../internals/profiler.h"

namespace airgraph {
namespace {

namespace py = pybind11;

constexpr const char* HANDLE = "airgraph.Observer";

py::object code_of(PyFrameObject* frame) {
  return py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(PyFrame_GetCode(frame)));
}

py::object globals_of(PyFrameObject* frame) {
  return py::reinterpret_steal<py::object>(PyObject_GetAttrString(reinterpret_cast<PyObject*>(frame), "f_globals"));
}

}  // namespace

Observer::Observer(const py::list& watched, const py::list& passed_over, const py::list& built_in,
                   py::object on_built_in, py::object on_first, py::object is_own)
    : on_built_in_(std::move(on_built_in)), on_first_(std::move(on_first)), is_own_(std::move(is_own)) {
  for (const auto& function : built_in) {
    built_in_.insert_or_assign(function.ptr(), py::reinterpret_borrow<py::object>(function));
  }
  for (const auto& each : watched) {
    auto [code, function] = each.cast<std::pair<py::object, py::object>>();
    // Looked up by address: to hash a code object is slow.
    auto* const key = code.ptr();
    watched_.insert_or_assign(key, Watched{std::move(code), std::move(function)});
  }
  for (const auto& code : passed_over) {
    passed_over_.insert_or_assign(code.ptr(), py::reinterpret_borrow<py::object>(code));
  }
}

Observer::~Observer() { remove(); }

void Observer::install() {
  if (handle_) {
    throw std::runtime_error("the observer is installed already");
  }
  const auto [function, argument] = profiler_of_this_thread();
  before_ = function;
  before_argument_ = py::reinterpret_borrow<py::object>(argument);
  outermost_ = nullptr;
  handle_ = py::capsule(this, HANDLE);
  profiles_ = Profiles::nothing;
  passes_over_ = false;
  // A profiler that is there is told of everything.
  sees_frames_ = before_ == nullptr && watch_frames(*this);
  if (!sees_frames_) {
    PyEval_SetProfile(&Observer::on_event, handle_.ptr());
  }
}

void Observer::remove() {
  if (!handle_) {
    return;
  }
  if (sees_frames_) {
    unwatch_frames();
  }
  // Only if nobody else came after it.
  if (profiler_of_this_thread().argument == handle_.ptr()) {
    PyEval_SetProfile(before_, before_argument_.ptr());
  }
  PyCapsule_SetContext(handle_.ptr(), this);
  handle_ = py::object();
  before_ = nullptr;
  before_argument_ = py::object();
}

py::list Observer::seen() const {
  py::list made;
  for (const auto& each : seen_) {
    made.append(py::make_tuple(each.code, each.globals));
  }
  return made;
}

int Observer::on_event(PyObject* self, PyFrameObject* frame, int what, PyObject* argument) {
  // Removed, but still called by a thread that was on its way.
  if (PyCapsule_GetContext(self) != nullptr) {
    return 0;
  }
  auto* observer = static_cast<Observer*>(PyCapsule_GetPointer(self, HANDLE));
  if (what == PyTrace_CALL) {
    const int noted = observer->note(frame);
    // Not that of what is passed over and came first, such as a callback of the garbage collector.
    if (observer->profiles_ == Profiles::a_beginning && observer->outermost_ == nullptr) {
      if (observer->own_.contains(code_of(frame).ptr())) {
        observer->profiles_ = Profiles::own_code;
      } else {
        observer->stop_profiling();
      }
    }
    if (noted != 0) {
      return -1;
    }
  }
  if (what == PyTrace_C_CALL && argument != nullptr && observer->note_built_in(frame, argument) != 0) {
    return -1;
  }
  if (what == PyTrace_RETURN && frame == observer->outermost_) {
    observer->outermost_ = nullptr;
  }
  if (observer->before_ != nullptr) {
    return observer->before_(observer->before_argument_.ptr(), frame, what, argument);
  }
  return 0;
}

PyObject* Observer::on_frame(const Frame& frame) {
  auto* const code = frame.code();
  if (profiles_ != Profiles::nothing || passes_over_ || is_noting_ || plain_like(code) == code) {
    return frame.run();
  }
  if (is_passed_over(code)) {
    passes_over_ = true;
    auto* const result = frame.run();
    passes_over_ = false;
    return result;
  }
  start_profiling(own_.contains(code) ? Profiles::own_code : Profiles::a_beginning);
  auto* const result = frame.run();
  if (profiles_ != Profiles::nothing) {
    stop_profiling();
  }
  return result;
}

void Observer::start_profiling(Profiles what) {
  // Before: hooks of Python's audits run frames, too.
  profiles_ = what;
  outermost_ = nullptr;
  PyEval_SetProfile(&Observer::on_event, handle_.ptr());
}

void Observer::stop_profiling() {
  // Unless somebody has installed another one meanwhile.
  if (profiler_of_this_thread().argument == handle_.ptr()) {
    const py::error_scope raised;
    profiles_ = Profiles::own_code;
    PyEval_SetProfile(nullptr, nullptr);
  }
  profiles_ = Profiles::nothing;
}

bool Observer::is_passed_over(PyObject* code) const {
  return passed_over_.contains(code) ||
         PyUnicode_Compare(reinterpret_cast<PyCodeObject*>(code)->co_name, del_.ptr()) == 0;
}

int Observer::note(PyFrameObject* frame) {
  if (is_noting_ || outermost_ != nullptr) {
    return 0;
  }
  const auto code = code_of(frame);
  auto*& plain = plain_like(code.ptr());
  if (plain == code.ptr()) {
    return 0;
  }
  if (is_passed_over(code.ptr())) {
    outermost_ = frame;
    return 0;
  }
  if (known_.insert(code.ptr()).second && note_first(code, frame) != 0) {
    return -1;
  }
  const auto watched = watched_.find(code.ptr());
  if (watched == watched_.end()) {
    if (!own_.contains(code.ptr())) {
      plain = code.ptr();
    }
    return 0;
  }
  return answer_of(watched->second.function.ptr(), reinterpret_cast<PyObject*>(frame), nullptr) ? 0 : -1;
}

int Observer::note_first(const py::object& code, PyFrameObject* frame) {
  const auto globals = globals_of(frame);
  if (!globals || !find_owner(code, globals, frame)) {
    return -1;
  }
  if (!own_.contains(code.ptr())) {
    return 0;
  }
  seen_.push_back({code, globals});
  if (watched_.contains(code.ptr())) {
    return 0;
  }
  auto function = answer_of(on_first_.ptr(), reinterpret_cast<PyObject*>(frame), nullptr);
  if (!function) {
    return -1;
  }
  if (!function.is_none()) {
    watched_.insert_or_assign(code.ptr(), Watched{code, std::move(function)});
  }
  return 0;
}

bool Observer::find_owner(const py::object& code, const py::object& globals, PyFrameObject* frame) {
  if (of_others_.contains(globals.ptr())) {
    return true;
  }
  const auto own = answer_of(is_own_.ptr(), reinterpret_cast<PyObject*>(frame), nullptr);
  if (!own) {
    return false;
  }
  if (own.is(py::handle(Py_True))) {
    own_.insert(code.ptr());
  } else if (own.is(py::handle(Py_False))) {
    of_others_.insert_or_assign(globals.ptr(), globals);
  }
  return true;
}

int Observer::note_built_in(PyFrameObject* frame, PyObject* function) {
  if (is_noting_ || outermost_ != nullptr || !built_in_.contains(function)) {
    return 0;
  }
  return answer_of(on_built_in_.ptr(), reinterpret_cast<PyObject*>(frame), function) ? 0 : -1;
}

py::object Observer::answer_of(PyObject* function, PyObject* frame, PyObject* argument) {
  is_noting_ = true;
  auto answer = py::reinterpret_steal<py::object>(PyObject_CallFunctionObjArgs(function, frame, argument, nullptr));
  is_noting_ = false;
  return answer;
}

}  // namespace airgraph
