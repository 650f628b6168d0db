// SPDX-License-Identifier: Apache-2.0
// cuBLAS's handles, and the workspace that torch gives each: products scribble over it (kernels/workspace.h).
#include <cstddef>
#include <cstdint>

#include "cublas_handle.h"

extern "C" {

SIMCUDA_EXPORT int cublasCreate_v2(void** handle) {
  *handle = new simcuda::CublasHandle;
  return 0;
}

SIMCUDA_EXPORT int cublasDestroy_v2(void* handle) {
  delete static_cast<simcuda::CublasHandle*>(handle);
  return 0;
}

SIMCUDA_EXPORT int cublasSetWorkspace_v2(void* handle, void* workspace, size_t nbytes) {
  auto& known = *static_cast<simcuda::CublasHandle*>(handle);
  known.workspace = workspace;
  known.workspace_nbytes = nbytes;
  return 0;
}

SIMCUDA_EXPORT int cublasGetVersion_v2(void*, int* version) {
  *version = 130000;
  return 0;
}

}  // extern "C"
