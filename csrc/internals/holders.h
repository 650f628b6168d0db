// Who holds a tensor's memory: counted, since c10 does not say.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace airgraph {

// For each of these tensors whether something in C++ beside them, and beside what they are views of, holds its memory.
// A tensor that Python has an object for is held by that too, which is not counted here.
std::vector<bool> held_by_others(const std::vector<at::Tensor>& tensors);

}  // namespace airgraph
