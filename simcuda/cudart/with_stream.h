// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include "runtime.h"
#include "status.h"

namespace simcuda {

// What the action says of a stream; an error where there is no such stream.
template <typename Action>
cudaError_t with_stream(cudaStream_t handle, Action&& action) {
  const auto found = Runtime::get().stream(handle);
  if (!found.stream) return fail(no_such_stream(handle));
  return fail(action(found));
}

}  // namespace simcuda
