// SPDX-License-Identifier: Apache-2.0
// What went wrong, as a runtime's own code and a sentence.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>

namespace simdevice {

using Status = int;  // a code of the simulated runtime (aclError, cudaError_t); 0 is success

// What the device itself can refuse. Each runtime has a code for each.
enum class Fault {
  invalid_argument,
  out_of_memory,
  no_such_stream,
  no_stream_left,
  used_after_fork,
  kernel_failed,
  host_memory_registered,
  host_memory_unknown,
  stream_captured,
  stream_not_captured,
  event_captured,
  capture_invalidated,
  capture_unmatched,
  capture_wrong_thread,
  capture_unjoined,
  capture_dependency,
  capture_conflict,
  capture_forbids_call,
  capture_blocking_copy,
  group_open,
  group_status,
  group_update_refused,
  group_update_failed,
};

// Defined by the runtime.
Status status_of(Fault fault) noexcept;

struct Failure {
  Status status;
  std::string message;
};

// Null when all went well. Shared, because a failure travels: from a kernel to its stream, and on to those that wait.
using FailurePtr = std::shared_ptr<const Failure>;

inline FailurePtr make_failure(Status status, std::string message) {
  return std::make_shared<const Failure>(Failure{status, std::move(message)});
}
inline FailurePtr make_failure(Fault fault, std::string message) {
  return make_failure(status_of(fault), std::move(message));
}

// Thrown by work on the device that failed with an error of its own; any other exception becomes a kernel exception.
class DeviceFault : public std::runtime_error {
 public:
  explicit DeviceFault(FailurePtr failure) : std::runtime_error(failure->message), failure_(std::move(failure)) {}
  const FailurePtr& failure() const noexcept { return failure_; }

 private:
  FailurePtr failure_;
};

}  // namespace simdevice
