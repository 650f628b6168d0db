// SPDX-License-Identifier: Apache-2.0
#include "status.h"

#include <utility>

#include "simdevice/trace.h"

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

}  // namespace

Status fail(Status status, std::string message) {
  trace("  failed with", status, message);
  recent().status = status;
  recent().message = "simcann: " + std::move(message);
  return status;
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
