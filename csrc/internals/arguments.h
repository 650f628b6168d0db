#pragma once

#include <ATen/core/function_schema.h>
#include <ATen/core/stack.h>
#include <torch/csrc/utils/pybind.h>

namespace airgraph {

// The arguments that a schema asks for, in its order, from Python's. A number where it wants a tensor becomes a wrapped
// number, as in eager; defaults stand in for what is not given. Throws c10::Error, which names the schema, where
// something is missing, unknown or of another type.
torch::jit::Stack arguments_of(const c10::FunctionSchema& schema, const pybind11::tuple& args,
                               const pybind11::dict& kwargs);

}  // namespace airgraph
