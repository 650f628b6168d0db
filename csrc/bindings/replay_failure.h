// The error of a failed replay, in Python.
#pragma once

#include <Python.h>

#include "../engine/tape.h"

namespace airgraph {

// Sets an error of `type`, with the failure's index and message. What a Python operator raised to end the program comes
// out as itself; what else it raised is the cause.
void raise_failure(const ReplayFailure& error, PyObject* type);

}  // namespace airgraph
