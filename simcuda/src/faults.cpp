// SPDX-License-Identifier: Apache-2.0
// The device's refusals as cudaErrors.
#include <cuda_runtime_api.h>

#include "simdevice/engine/failure.h"

simdevice::Status simdevice::status_of(Fault fault) noexcept {
  switch (fault) {
    case Fault::invalid_argument:
    case Fault::host_memory_unknown:
      return cudaErrorInvalidValue;
    case Fault::out_of_memory:
    case Fault::no_stream_left:
      return cudaErrorMemoryAllocation;
    case Fault::no_such_stream:
      return cudaErrorInvalidResourceHandle;
    case Fault::used_after_fork:
      return cudaErrorInitializationError;
    case Fault::kernel_failed:
      return cudaErrorLaunchFailure;
    case Fault::host_memory_registered:
      return cudaErrorHostMemoryAlreadyRegistered;
    case Fault::stream_captured:
    case Fault::capture_forbids_call:
    case Fault::capture_blocking_copy:
      return cudaErrorStreamCaptureUnsupported;
    case Fault::stream_not_captured:
      return cudaErrorIllegalState;
    case Fault::event_captured:
      return cudaErrorCapturedEvent;
    case Fault::capture_invalidated:
      return cudaErrorStreamCaptureInvalidated;
    case Fault::capture_unmatched:
      return cudaErrorStreamCaptureUnmatched;
    case Fault::capture_wrong_thread:
      return cudaErrorStreamCaptureWrongThread;
    case Fault::capture_unjoined:
      return cudaErrorStreamCaptureUnjoined;
    case Fault::capture_dependency:
      return cudaErrorStreamCaptureIsolation;
    case Fault::capture_conflict:
      return cudaErrorStreamCaptureMerge;
    case Fault::group_open:
    case Fault::group_status:
    case Fault::group_update_refused:
    case Fault::group_update_failed:
      break;  // CUDA has no task groups
  }
  return cudaErrorInvalidValue;
}
