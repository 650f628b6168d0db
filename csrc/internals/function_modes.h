// Which function modes a thread has, as Python knows them. Needs the GIL.
#pragma once

#include <Python.h>

#include <cstdint>

namespace airgraph {

int64_t function_mode_count();

// The i-th from the outermost, borrowed.
PyObject* function_mode(int64_t i);

}  // namespace airgraph
