// SPDX-License-Identifier: Apache-2.0
// The one device of the process, made at its first use.
#pragma once

#include "simdevice/device.h"

namespace simcann {

using namespace simdevice;

class Runtime : public Device {
 public:
  static Runtime& get();

 private:
  Runtime();
};

}  // namespace simcann
