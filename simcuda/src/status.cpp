// SPDX-License-Identifier: Apache-2.0
#include "status.h"

#include <string_view>
#include <utility>

#include "export.h"
#include "settings.h"
#include "simdevice/asked_failures.h"
#include "simdevice/read_anew.h"

namespace simcuda {

int refuse_absent(const char* name);

namespace {

struct Last {
  cudaError_t status = cudaSuccess;         // until it is taken
  cudaError_t described = cudaSuccess;      // what the message is about
  std::string message;
};

Last& last() {
  thread_local Last value;
  return value;
}

[[maybe_unused]] const bool asked_by_variable = [] {
  ask_for_failures(settings().failures);
  return true;
}();

}  // namespace

cudaError_t fail(cudaError_t status, std::string message) {
  trace("  failed with", static_cast<int>(status), message);
  last() = {status, status, "simcuda: " + std::move(message)};
  return status;
}

// For what cudart/absent.cpp declares without its arguments.
int refuse_absent(const char* name) {
  return fail(cudaErrorNotSupported, std::string(name) + " is not simulated");
}

cudaError_t last_error() noexcept { return last().status; }

cudaError_t take_last_error() noexcept { return std::exchange(last().status, cudaSuccess); }

const char* last_message(cudaError_t status) noexcept {
  const auto& value = last();
  return value.described == status && !value.message.empty() ? value.message.c_str() : nullptr;
}

cudaError_t asked_for_failure(const char* call) {
  const auto status = asked_for(call);
  return status == 0 ? cudaSuccess
                     : fail(static_cast<cudaError_t>(status), std::string(call) + " fails, as it was asked to");
}

}  // namespace simcuda

simdevice::Status simdevice::usual_failure_of(std::string_view call) noexcept {
  return call == "cudaMalloc" || call == "cudaGraphInstantiateWithFlags" || call == "cudaHostAlloc"
             ? cudaErrorMemoryAllocation
             : cudaErrorUnknown;
}

// For tests, by simdevice.failures and simdevice.settings.
extern "C" SIMCUDA_EXPORT void simcuda_fail(const char* call, long calls_before, int status) {
  simdevice::ask_for_failure(call, calls_before, status);
}

extern "C" SIMCUDA_EXPORT int simcuda_read_settings() {
  return simdevice::read_anew(simcuda::held_settings(), &simcuda::read_settings) ? 1 : 0;
}

extern "C" SIMCUDA_EXPORT int simcuda_fail_nothing() { return simdevice::ask_for_no_failure(); }
