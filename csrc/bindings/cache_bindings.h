// What the compile cache needs of the engine, for Python.
#pragma once

#include <pybind11/pybind11.h>

namespace airgraph {

void bind_cache(pybind11::module_& m);

}  // namespace airgraph
