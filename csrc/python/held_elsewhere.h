// Who holds a tensor, in C++ and in Python.
#pragma once

#include <torch/csrc/utils/pybind.h>

#include <vector>

namespace airgraph {

// Whether somebody else holds each of these tensors, or a tensor on its memory. They are in two lists, this one
// included.
std::vector<bool> held_elsewhere(const pybind11::list& tensors);

}  // namespace airgraph
