// SPDX-License-Identifier: Apache-2.0
// The device's refusals as aclErrors.
#include <acl/error_codes/rt_error_codes.h>

#include "simdevice/engine/failure.h"

simdevice::Status simdevice::status_of(Fault fault) noexcept {
  switch (fault) {
    case Fault::invalid_argument:
      return ACL_ERROR_RT_PARAM_INVALID;
    case Fault::out_of_memory:
      return ACL_ERROR_RT_MEMORY_ALLOCATION;
    case Fault::no_such_stream:
      return ACL_ERROR_RT_STREAM_CONTEXT;
    case Fault::no_stream_left:
      return ACL_ERROR_RT_NO_STREAM_RESOURCE;
    case Fault::used_after_fork:
      return ACL_ERROR_RT_CONTEXT_NULL;
    case Fault::kernel_failed:
      return ACL_ERROR_RT_AICORE_EXCEPTION;
    case Fault::host_memory_registered:
      return ACL_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    case Fault::host_memory_unknown:
      return ACL_ERROR_HOST_MEMORY_NOT_REGISTERED;
    case Fault::stream_captured:
      return ACL_ERROR_RT_STREAM_CAPTURED;
    case Fault::stream_not_captured:
      return ACL_ERROR_RT_STREAM_NOT_CAPTURED;
    case Fault::event_captured:
      return ACL_ERROR_RT_EVENT_CAPTURED;
    case Fault::capture_invalidated:
      return ACL_ERROR_RT_STREAM_CAPTURE_INVALIDATED;
    case Fault::capture_unmatched:
      return ACL_ERROR_RT_STREAM_CAPTURE_UNMATCHED;
    case Fault::capture_wrong_thread:
      return ACL_ERROR_RT_STREAM_CAPTURE_WRONG_THREAD;
    case Fault::capture_unjoined:
      return ACL_ERROR_RT_STREAM_UNJOINED;
    case Fault::capture_dependency:
      return ACL_ERROR_RT_CAPTURE_DEPENDENCY;
    case Fault::capture_conflict:
      return ACL_ERROR_STREAM_CAPTURE_CONFLICT;
    case Fault::capture_forbids_call:
      return ACL_ERROR_RT_CAPTURE_MODE_NOT_SUPPORT;
    case Fault::capture_blocking_copy:
      return ACL_ERROR_RT_CAPTURE_MODE_BLOCK_ASYNC;
    case Fault::group_open:
      return ACL_ERROR_STREAM_TASK_GROUP_INTR;
    case Fault::group_status:
      return ACL_ERROR_STREAM_TASK_GROUP_STATUS;
    case Fault::group_update_refused:
      return ACL_ERROR_RT_FEATURE_NOT_SUPPORT_UPDATE_OP;
    case Fault::group_update_failed:
      return ACL_ERROR_RT_MODEL_UPDATE_FAILED;
  }
  return ACL_ERROR_RT_PARAM_INVALID;
}
