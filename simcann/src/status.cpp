// SPDX-License-Identifier: Apache-2.0
#include "status.h"

#include <acl/error_codes/rt_error_codes.h>

#include <utility>

#include "settings.h"
#include "simdevice/asked_failures.h"
#include "simdevice/read_anew.h"

namespace simcann {
namespace {

struct Recent {
  std::string message;
  std::string handed_out;  // keeps the last pointer given to the caller valid
  Status status = 0;
};

Recent& recent() {
  thread_local Recent value;
  return value;
}

[[maybe_unused]] const bool asked_by_variable = [] {
  ask_for_failures(settings().failures);
  return true;
}();

}  // namespace

Status fail(Status status, std::string message) {
  trace("  failed with", status, message);
  recent().status = status;
  recent().message = "simcann: " + std::move(message);
  return status;
}

Status asked_for_failure(const char* call) {
  const auto status = asked_for(call);
  return status == 0 ? 0 : fail(status, std::string(call) + " fails, as it was asked to");
}

const char* take_recent_message() {
  auto& value = recent();
  if (value.message.empty()) return nullptr;
  value.handed_out = std::exchange(value.message, {});
  return value.handed_out.c_str();
}

Status last_status() noexcept { return recent().status; }

void forget_last_status() noexcept { recent().status = 0; }

}  // namespace simcann

simdevice::Status simdevice::usual_failure_of(std::string_view call) noexcept {
  return call.starts_with("aclrtMalloc") ? ACL_ERROR_RT_MEMORY_ALLOCATION : ACL_ERROR_RT_INTERNAL_ERROR;
}

// For tests, by simdevice.failures and simdevice.settings.
extern "C" SIMCANN_EXPORT void simcann_fail(const char* call, long calls_before, int status) {
  simdevice::ask_for_failure(call, calls_before, status);
}

extern "C" SIMCANN_EXPORT int simcann_read_settings() {
  return simdevice::read_anew(simcann::held_settings(), &simcann::read_settings) ? 1 : 0;
}

extern "C" SIMCANN_EXPORT int simcann_fail_nothing() { return simdevice::ask_for_no_failure(); }
