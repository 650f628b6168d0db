// The profiler that a thread has, of which CPython tells through no function.
#pragma once

#include <Python.h>

namespace airgraph {

struct Profiler {
  Py_tracefunc function;
  PyObject* argument;  // borrowed
};

inline Profiler profiler_of_this_thread() {
  const auto* thread = PyThreadState_Get();
  return {thread->c_profilefunc, thread->c_profileobj};
}

}  // namespace airgraph
