// Python's lock, given up for what needs none of it.
#pragma once

#include <Python.h>

#include <chrono>
#include <thread>

namespace airgraph {

// While it lives, other threads may run Python.
class WithoutGil {
 public:
  WithoutGil() : state_(PyEval_SaveThread()) {}
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;
  // Before 3.14 a Python that ends lets a thread that asks for the lock end too, by unwinding it, and a destructor that
  // is unwound aborts the process. Such a thread sleeps here until the process has ended, as 3.14 has it.
  ~WithoutGil() {
    try {
      PyEval_RestoreThread(state_);
    } catch (...) {
      for (;;) {
        std::this_thread::sleep_for(std::chrono::hours(1));
      }
    }
  }

 private:
  PyThreadState* const state_;
};

}  // namespace airgraph
