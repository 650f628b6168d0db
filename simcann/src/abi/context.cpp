// SPDX-License-Identifier: Apache-2.0
#include "abi/context.h"

#include <acl/error_codes/rt_error_codes.h>

namespace simcann {
namespace {

thread_local int device_of_thread = -1;

}  // namespace

int current_device() noexcept { return device_of_thread; }

void set_current_device(int device) noexcept { device_of_thread = device; }

FailurePtr check_device(int device) {
  if (device >= 0 && device < device_count) return nullptr;
  return make_failure(ACL_ERROR_RT_INVALID_DEVICEID, "there is no device " + std::to_string(device) +
                                                         ": the simulated machine has device 0 only");
}

}  // namespace simcann
