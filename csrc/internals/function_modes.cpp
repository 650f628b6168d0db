#include "function_modes.h"

#include <ATen/PythonTorchFunctionTLS.h>
#include <torch/csrc/PyInterpreter.h>

namespace airgraph {

int64_t function_mode_count() { return at::impl::PythonTorchFunctionTLS::stack_len(); }

PyObject* function_mode(int64_t i) {
  return at::impl::PythonTorchFunctionTLS::get_stack_at(i)->ptr(getPyInterpreter());
}

}  // namespace airgraph
