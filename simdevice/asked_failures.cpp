// SPDX-License-Identifier: Apache-2.0
#include "simdevice/asked_failures.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <string>

#include "simdevice/settings.h"

namespace simdevice {
namespace {

struct AskedFor {
  long calls_before;
  Status status;
};

struct Asked {
  std::mutex mutex;
  std::atomic<bool> any = false;
  std::map<std::string, AskedFor, std::less<>> calls;
};

Asked& asked() {
  static auto& all = *new Asked;
  return all;
}

}  // namespace

void ask_for_failure(std::string_view call, long calls_before, Status status) {
  std::lock_guard lock(asked().mutex);
  asked().calls.insert_or_assign(std::string(call),
                                 AskedFor{calls_before, status == 0 ? usual_failure_of(call) : status});
  asked().any = true;
}

void ask_for_failures(std::string_view text) {
  while (!text.empty()) {
    const auto end = std::min(text.find(','), text.size());
    const auto item = text.substr(0, end);
    const auto colon = item.find(':');
    const auto count = colon == std::string_view::npos ? 0 : number_of(item.substr(colon + 1)).value_or(0);
    ask_for_failure(item.substr(0, colon), static_cast<long>(count), 0);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

int ask_for_no_failure() {
  std::lock_guard lock(asked().mutex);
  const auto left = static_cast<int>(asked().calls.size());
  asked().calls.clear();
  asked().any = false;
  return left;
}

Status asked_for(std::string_view call) {
  if (!asked().any.load(std::memory_order_relaxed)) return 0;
  std::lock_guard lock(asked().mutex);
  const auto it = asked().calls.find(call);
  if (it == asked().calls.end() || it->second.calls_before-- > 0) return 0;
  const auto status = it->second.status;
  asked().calls.erase(it);
  asked().any = !asked().calls.empty();
  return status;
}

}  // namespace simdevice
