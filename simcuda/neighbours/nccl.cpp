// SPDX-License-Identifier: Apache-2.0
#include "export.h"

extern "C" {

SIMCUDA_EXPORT int ncclGetVersion(int* version) {
  *version = 22800;
  return 0;
}

SIMCUDA_EXPORT const char* ncclGetErrorString(int) { return "NCCL is not simulated"; }
SIMCUDA_EXPORT const char* ncclGetLastError(void*) { return "NCCL is not simulated"; }

}  // extern "C"
