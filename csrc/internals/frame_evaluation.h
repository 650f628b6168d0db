// Frames of Python's, seen before they run: the interpreter hands each one to whoever is set to evaluate them (PEP
// 523).
#pragma once

#include <Python.h>

namespace airgraph {

// A frame that is about to run, or to go on after a yield.
class Frame {
 public:
  Frame(PyThreadState* thread, void* frame, int throws) : thread_(thread), frame_(frame), throws_(throws) {}

  // A borrowed reference.
  PyObject* code() const;
  // Runs it, once. As the interpreter does: null with an error set where it raises.
  PyObject* run() const;

 private:
  PyThreadState* thread_;
  void* frame_;
  int throws_;
};

class FrameWatcher {
 public:
  // In place of each frame of the thread: returns what its `run` returns.
  virtual PyObject* on_frame(const Frame& frame) = 0;

 protected:
  ~FrameWatcher() = default;
};

// Has the frames of this thread go by a watcher, which lives until `unwatch_frames`. False, and nothing is changed,
// where this Python is not known to hand frames over as it is read here, or somebody else is handed them. Who asks for
// them later comes before the watcher, and hands on to it. Needs the GIL.
bool watch_frames(FrameWatcher& watcher);
void unwatch_frames();

}  // namespace airgraph
