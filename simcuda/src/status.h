// SPDX-License-Identifier: Apache-2.0
// The last error of each thread, and failures that were asked for.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "simdevice/engine/failure.h"
#include "simdevice/trace.h"

namespace simcuda {

using namespace simdevice;

// Note the error for cudaGetLastError and its sentence for cudaGetErrorString, and return it.
cudaError_t fail(cudaError_t status, std::string message);
inline cudaError_t fail(const FailurePtr& failure) {
  return failure ? fail(static_cast<cudaError_t>(failure->status), failure->message) : cudaSuccess;
}

cudaError_t last_error() noexcept;
cudaError_t take_last_error() noexcept;
// The sentence of this thread's last failure with that code; null if there is none.
const char* last_message(cudaError_t status) noexcept;

// The failure that somebody asked for (SIMCUDA_FAIL, simcuda_fail) for this call, or success.
cudaError_t asked_for_failure(const char* call);

// At the start of each function of the runtime: its line in the trace, and the failure to return if it is to fail.
template <typename... Arguments>
cudaError_t entered(const char* call, const Arguments&... arguments) {
  trace(call, arguments...);
  return asked_for_failure(call);
}

}  // namespace simcuda
