// The aclnn status codes that this library returns.
#pragma once

#include "../src/device.h"

namespace simcann::opapi {

constexpr Status SUCCESS = 0;
constexpr Status PARAM_NULLPTR = 161001;
constexpr Status PARAM_INVALID = 161002;

}  // namespace simcann::opapi
