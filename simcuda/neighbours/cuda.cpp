// SPDX-License-Identifier: Apache-2.0
// The driver's interface, as far as torch asks it.
#include "export.h"

extern "C" {

// Torch believes that nothing is captured on a device whose context is not active.
SIMCUDA_EXPORT int cuDevicePrimaryCtxGetState(int, unsigned* flags, int* active) {
  *flags = 0;
  *active = 1;
  return 0;
}

SIMCUDA_EXPORT int cuCtxGetCurrent(void** context) {
  static int any = 0;
  *context = &any;
  return 0;
}

SIMCUDA_EXPORT int cuGetErrorString(int, const char** text) {
  *text = "the CUDA driver is not simulated";
  return 0;
}

}  // extern "C"
