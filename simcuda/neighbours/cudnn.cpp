// SPDX-License-Identifier: Apache-2.0
#include <cstddef>

#include "export.h"

extern "C" {

SIMCUDA_EXPORT int cudnnCreate(void** handle) {
  static int any = 0;
  *handle = &any;
  return 0;
}

SIMCUDA_EXPORT size_t cudnnGetVersion() { return 92000; }
SIMCUDA_EXPORT size_t cudnnGetCudartVersion() { return 13000; }
SIMCUDA_EXPORT const char* cudnnGetErrorString(int) { return "cuDNN is not simulated"; }

}  // extern "C"
