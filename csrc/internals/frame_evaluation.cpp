#include "frame_evaluation.h"

namespace airgraph {

// From 3.12 on a profiler costs less, and to switch it on and off more.
#if PY_VERSION_HEX >= 0x030B0000 && PY_VERSION_HEX < 0x030C0000

namespace {

// The beginning of `_PyInterpreterFrame` of 3.11.
struct FrameStart {
  void* function;
  PyObject* globals;
  PyObject* builtins;
  PyObject* locals;
  PyObject* code;
};

FrameWatcher* watcher = nullptr;
PyThreadState* watched_thread = nullptr;

PyInterpreterState* interpreter() { return PyInterpreterState_Get(); }

PyObject* evaluate(PyThreadState* thread, _PyInterpreterFrame* frame, int throws) {
  if (watcher != nullptr && thread == watched_thread) {
    return watcher->on_frame(Frame(thread, frame, throws));
  }
  if (watcher == nullptr && _PyInterpreterState_GetEvalFrameFunc(interpreter()) == &evaluate) {
    // Whoever came after the watcher has put this back.
    _PyInterpreterState_SetEvalFrameFunc(interpreter(), &_PyEval_EvalFrameDefault);
  }
  return _PyEval_EvalFrameDefault(thread, frame, throws);
}

// Whether frames are read right, by a function whose code is known.
class Probe final : public FrameWatcher {
 public:
  PyObject* on_frame(const Frame& frame) override {
    seen_ = frame.code();
    return frame.run();
  }

  bool is_right() {
    auto* const globals = PyDict_New();
    auto* const function = globals == nullptr ? nullptr : PyRun_String("lambda: None", Py_eval_input, globals, globals);
    // Making it ran a frame, too.
    seen_ = nullptr;
    auto* const result = function == nullptr ? nullptr : PyObject_CallNoArgs(function);
    const bool right = result != nullptr && seen_ == PyFunction_GetCode(function);
    Py_XDECREF(result);
    Py_XDECREF(function);
    Py_XDECREF(globals);
    PyErr_Clear();
    return right;
  }

 private:
  PyObject* seen_ = nullptr;
};

}  // namespace

PyObject* Frame::code() const { return static_cast<const FrameStart*>(frame_)->code; }

PyObject* Frame::run() const {
  return _PyEval_EvalFrameDefault(thread_, static_cast<_PyInterpreterFrame*>(frame_), throws_);
}

bool watch_frames(FrameWatcher& to) {
  const auto current = _PyInterpreterState_GetEvalFrameFunc(interpreter());
  if (watcher != nullptr || (current != &_PyEval_EvalFrameDefault && current != &evaluate)) {
    return false;
  }
  Probe probe;
  watcher = &probe;
  watched_thread = PyThreadState_Get();
  _PyInterpreterState_SetEvalFrameFunc(interpreter(), &evaluate);
  if (!probe.is_right()) {
    unwatch_frames();
    return false;
  }
  watcher = &to;
  return true;
}

void unwatch_frames() {
  watcher = nullptr;
  watched_thread = nullptr;
  if (_PyInterpreterState_GetEvalFrameFunc(interpreter()) == &evaluate) {
    _PyInterpreterState_SetEvalFrameFunc(interpreter(), &_PyEval_EvalFrameDefault);
  }
}

#else

PyObject* Frame::code() const { return nullptr; }

PyObject* Frame::run() const { return nullptr; }

bool watch_frames(FrameWatcher& /*to*/) { return false; }

void unwatch_frames() {}

#endif

}  // namespace airgraph
