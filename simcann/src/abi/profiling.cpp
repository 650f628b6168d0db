// SPDX-License-Identifier: Apache-2.0
// The profiler's reporting functions: nothing is profiled, so reports are dropped.
#include <profiling/aprof_pub.h>

#include <chrono>
#include <functional>
#include <string_view>

extern "C" {

int32_t MsprofRegisterCallback(uint32_t, ProfCommandHandle) { return MSPROF_ERROR_NONE; }

int32_t MsprofReportApi(uint32_t, const MsprofApi*) { return MSPROF_ERROR_NONE; }

int32_t MsprofReportCompactInfo(uint32_t, const VOID_PTR, uint32_t) { return MSPROF_ERROR_NONE; }

int32_t MsprofReportAdditionalInfo(uint32_t, const VOID_PTR, uint32_t) { return MSPROF_ERROR_NONE; }

uint64_t MsprofGetHashId(const char* hashInfo, size_t length) {
  return std::hash<std::string_view>{}({hashInfo, length});
}

uint64_t MsprofSysCycleTime() {
  return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

}  // extern "C"
