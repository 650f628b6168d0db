// A prepared call of an operator, as libnnopbase sees it: something that can be thrown away.
#pragma once

#include "../src/device.h"

struct aclOpExecutor {
  virtual ~aclOpExecutor() = default;
};

extern "C" SIMCANN_EXPORT simcann::Status aclDestroyAclOpExecutor(aclOpExecutor* executor);
