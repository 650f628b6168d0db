// SPDX-License-Identifier: Apache-2.0
// What kernels may ask of the simulated devices. libcudart implements it.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "export.h"

namespace simcuda {

// The host address behind a device address, of whichever device; null if it is none. Only kernels may use it.
SIMCUDA_EXPORT void* host_view(const void* device);

// Whether all of [device, device + nbytes) is allocated: asked when a kernel runs, for what it will touch.
SIMCUDA_EXPORT bool is_allocated(const void* device, std::size_t nbytes);

// Queue a kernel on a stream (a cudaStream_t); a captured stream records it. Kernels of one stream run in order, one at
// a time. A kernel that throws leaves its stream with an error that names it. The result is a cudaError_t.
SIMCUDA_EXPORT int launch(void* stream, std::string name, std::function<void()> kernel);

// False with SIMCUDA_KERNELS=off: launches then cost their host time and do nothing.
SIMCUDA_EXPORT bool kernels_enabled();

}  // namespace simcuda
