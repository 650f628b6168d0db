// Calls of a Python class's objects that a door serves, without a frame of Python's.
#pragma once

#include <torch/csrc/utils/pybind.h>

namespace airgraph {

// From now on a call of an object of this class is tried by the door of the entry that served the last one: `door`, a
// Door or None, of the first of `_entries`. Its values are the arguments where there are as many as `_plain_arity`
// says, and none by name. What the door does not serve goes to `_without_door`, as a tuple, and a call that has
// no door to the `__call__` of the class, as before. Nothing is done where that is not `own`: somebody has put another
// there, who is to be asked at each call; as long as it is, Python calls it by itself.
void call_by_door(const pybind11::type& of, pybind11::handle own);

}  // namespace airgraph
