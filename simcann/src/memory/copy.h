// SPDX-License-Identifier: Apache-2.0
// Copies between host and device memory: checked when asked for, and again when they run.
#pragma once

#include <cstddef>
#include <functional>

#include <acl/acl_rt.h>

#include "simdevice/engine/failure.h"

namespace simcann {

using namespace simdevice;

struct Copy {
  void* target;
  const void* source;
  std::size_t nbytes;
  bool target_on_device;
  bool source_on_device;
  // One side is host memory that the device does not know: the call can only return when the copy is done.
  bool blocks_host;
};

// Fails if the kind does not describe the two addresses, or if a range is not allocated.
FailurePtr plan_copy(void* target, std::size_t target_nbytes, const void* source, std::size_t nbytes,
                     aclrtMemcpyKind kind, Copy* copy);

// Do it, on whichever thread. Throws DeviceFault if device memory was freed since it was planned.
void run_copy(const Copy& copy);

FailurePtr check_fill(const void* target, std::size_t target_nbytes, std::size_t nbytes);
void run_fill(void* target, int value, std::size_t nbytes);

}  // namespace simcann
