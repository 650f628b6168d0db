// SPDX-License-Identifier: Apache-2.0
// What went wrong, as an aclError and a sentence.
#pragma once

#include <acl/error_codes/rt_error_codes.h>

#include <memory>
#include <stdexcept>
#include <string>

namespace simcann {

using Status = int;  // an aclError; 0 is success

struct Failure {
  Status status;
  std::string message;
};

// Null when all went well. Shared, because a failure travels: from a kernel to its stream, and on to those that wait.
using FailurePtr = std::shared_ptr<const Failure>;

inline FailurePtr make_failure(Status status, std::string message) {
  return std::make_shared<const Failure>(Failure{status, std::move(message)});
}

// Thrown by work on the device that failed with an error of its own; any other exception becomes a kernel exception.
class DeviceFault : public std::runtime_error {
 public:
  explicit DeviceFault(FailurePtr failure) : std::runtime_error(failure->message), failure_(std::move(failure)) {}
  const FailurePtr& failure() const noexcept { return failure_; }

 private:
  FailurePtr failure_;
};

}  // namespace simcann
