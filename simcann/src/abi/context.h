// SPDX-License-Identifier: Apache-2.0
// Which device this thread works with.
#pragma once

#include "simdevice/engine/failure.h"

namespace simcann {

using namespace simdevice;

// The simulated machine has one device, number 0.
constexpr int device_count = 1;

int current_device() noexcept;  // -1 before the thread has chosen one
void set_current_device(int device) noexcept;

FailurePtr check_device(int device);

}  // namespace simcann
