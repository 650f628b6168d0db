// Notes which Python code runs, by the interpreter's profiling hook.
//
// Installed all the time, the hook takes half of the time of a trace again: the interpreter specializes nothing under
// it. Where frames can be seen before they run, it is installed only for the beginning of those that are new or
// watched, and for all that runs below the program's own.
#pragma once

#include <pybind11/pybind11.h>

#include <array>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "../internals/frame_evaluation.h"

namespace airgraph {

// While it is installed, every code object of the program's that begins to run on its thread is kept once, with the
// globals that it runs in. A profiler that was installed before is called as before. Needs the GIL.
class Observer final : public FrameWatcher {
 public:
  // watched: pairs of a code object and a function, which is called with the frame whenever that code begins to run.
  // passed_over: code objects; what runs below them, and below the end of an object, is neither kept nor watched.
  // built_in: functions in C; on_built_in is called with the frame that calls one of them, and with it.
  // is_own: called with the frame of a code object that begins to run for the first time. True: it is the program's,
  // below which alone on_built_in need be called; False: it is not, nor is any other that runs in these globals; None:
  // it alone is not. on_first: called with that frame where it is; where it returns a function, that code is watched
  // from then on.
  Observer(const pybind11::list& watched, const pybind11::list& passed_over, const pybind11::list& built_in,
           pybind11::object on_built_in, pybind11::object on_first, pybind11::object is_own);
  Observer(const Observer&) = delete;
  Observer& operator=(const Observer&) = delete;
  ~Observer();

  // Throws where it is installed already.
  void install();
  void remove();

  // (code, globals) of all of the program's that ran, in the order of their first run.
  pybind11::list seen() const;

  PyObject* on_frame(const Frame& frame) override;

 private:
  // Where frames are seen before they run: for what the profiling hook is installed.
  enum class Profiles { nothing, a_beginning, own_code };

  static int on_event(PyObject* self, PyFrameObject* frame, int what, PyObject* argument);
  int note(PyFrameObject* frame);
  int note_built_in(PyFrameObject* frame, PyObject* function);
  int note_first(const pybind11::object& code, PyFrameObject* frame);
  // False where it raised.
  bool find_owner(const pybind11::object& code, const pybind11::object& globals, PyFrameObject* frame);
  bool is_passed_over(PyObject* code) const;
  void start_profiling(Profiles what);
  void stop_profiling();
  PyObject*& plain_like(const PyObject* code) {
    return plain_[(reinterpret_cast<uintptr_t>(code) >> 4) % plain_.size()];
  }
  // Null where it raised.
  pybind11::object answer_of(PyObject* function, PyObject* frame, PyObject* argument);

  struct Seen {
    pybind11::object code, globals;
  };
  struct Watched {
    pybind11::object code, function;
  };

  std::unordered_map<PyObject*, Watched> watched_;
  std::unordered_map<PyObject*, pybind11::object> passed_over_;
  std::unordered_map<PyObject*, pybind11::object> built_in_;
  pybind11::object on_built_in_, on_first_, is_own_;
  std::unordered_set<PyObject*> own_;
  // Globals that only code of others runs in: a trace runs thousands of their functions, of some hundred modules.
  std::unordered_map<PyObject*, pybind11::object> of_others_;
  pybind11::object del_ = pybind11::str("__del__");
  // The outermost frame that is passed over now.
  PyFrameObject* outermost_ = nullptr;
  std::vector<Seen> seen_;
  std::unordered_set<PyObject*> known_;
  // Of the codes that are known, nothing to do for: one in each place, looked up before all else, since every call of
  // Python's comes by.
  std::array<PyObject*, 8192> plain_{};
  // What Python holds for it while it is installed.
  pybind11::object handle_;
  Py_tracefunc before_ = nullptr;
  pybind11::object before_argument_;
  bool is_noting_ = false;
  bool sees_frames_ = false;
  Profiles profiles_ = Profiles::nothing;
  // Within code that is passed over.
  bool passes_over_ = false;
};

}  // namespace airgraph
