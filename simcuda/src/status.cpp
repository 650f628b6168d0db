// SPDX-License-Identifier: Apache-2.0
#include "status.h"

#include <atomic>
#include <map>
#include <mutex>
#include <string_view>
#include <utility>

#include "export.h"
#include "settings.h"

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

struct AskedFor {
  long calls_before;
  cudaError_t status;
};

std::mutex asked_mutex;
std::atomic<int> asked_count{0};

std::map<std::string, AskedFor, std::less<>>& asked() {
  static auto& all = *new std::map<std::string, AskedFor, std::less<>>;
  return all;
}

// What fails where nothing else is said: the error that such a call fails with most often.
cudaError_t usual_error(std::string_view call) {
  return call == "cudaMalloc" || call == "cudaGraphInstantiateWithFlags" || call == "cudaHostAlloc"
             ? cudaErrorMemoryAllocation
             : cudaErrorUnknown;
}

void ask(std::string_view call, long calls_before, cudaError_t status) {
  std::lock_guard lock(asked_mutex);
  asked().insert_or_assign(std::string(call), AskedFor{calls_before, status});
  asked_count = static_cast<int>(asked().size());
}

// SIMCUDA_FAIL=call:calls_before,call:calls_before
[[maybe_unused]] const bool asked_by_variable = [] {
  std::string_view text = settings().failures;
  while (!text.empty()) {
    const auto end = std::min(text.find(','), text.size());
    const auto item = text.substr(0, end);
    const auto colon = item.find(':');
    const auto count = colon == std::string_view::npos ? 0 : number_of(item.substr(colon + 1)).value_or(0);
    const auto call = item.substr(0, colon);
    ask(call, static_cast<long>(count), usual_error(call));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
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
  if (asked_count.load(std::memory_order_relaxed) == 0) return cudaSuccess;
  AskedFor found;
  {
    std::lock_guard lock(asked_mutex);
    const auto it = asked().find(std::string_view(call));
    if (it == asked().end() || it->second.calls_before-- > 0) return cudaSuccess;
    found = it->second;
    asked().erase(it);
    asked_count = static_cast<int>(asked().size());
  }
  return fail(found.status, std::string(call) + " fails, as it was asked to");
}

}  // namespace simcuda

// For tests: the call fails once, after it succeeded `calls_before` times; 0 as status means the usual error of it.
extern "C" SIMCUDA_EXPORT void simcuda_fail(const char* call, long calls_before, int status) {
  simcuda::ask(call, calls_before, status == 0 ? simcuda::usual_error(call) : static_cast<cudaError_t>(status));
}

// For tests: no call fails any more that was asked to. Returns how many had not failed yet.
extern "C" SIMCUDA_EXPORT int simcuda_fail_nothing() {
  std::lock_guard lock(simcuda::asked_mutex);
  const auto left = static_cast<int>(simcuda::asked().size());
  simcuda::asked().clear();
  simcuda::asked_count = 0;
  return left;
}
