// SPDX-License-Identifier: Apache-2.0
// Start and end, versions, errors, and questions about the device.
#include <acl/acl.h>

#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <atomic>

#include <unistd.h>

#include "abi/context.h"
#include "runtime.h"
#include "settings.h"
#include "status.h"
#include "simdevice/trace.h"

using namespace simcann;

namespace {

std::atomic<bool> initialised{false};
std::atomic<std::int64_t> system_options[3];

// Numbers of an Ascend 910B1. Nothing is computed with them: torch_npu hands them on as device properties.
constexpr std::int64_t cube_cores = 24;
constexpr std::int64_t vector_cores = 48;
constexpr std::int64_t l2_nbytes = std::int64_t{192} << 20;

void copy_text(char* target, std::size_t capacity, const std::string& text) {
  std::snprintf(target, capacity, "%s", text.c_str());
}

// The part of "8.5.0" with this index; empty if there are fewer.
std::string version_part(const std::string& version, int index) {
  std::size_t start = 0;
  for (; index > 0; --index) {
    start = version.find('.', start);
    if (start == std::string::npos) return {};
    ++start;
  }
  return version.substr(start, version.find('.', start) - start);
}

// The driver has a version scheme of its own; torch_npu asks for at least 25.5.0 before it uses newer calls.
constexpr const char* driver_version = "25.5.0";

FailurePtr check_option(aclSysParamOpt option) {
  if (option >= ACL_OPT_DETERMINISTIC && option <= ACL_OPT_STRONG_CONSISTENCY) return nullptr;
  return make_failure(ACL_ERROR_RT_PARAM_INVALID, "unknown system parameter " + std::to_string(option));
}

}  // namespace

extern "C" {

aclError aclInit(const char* configPath) {
  trace(__func__, configPath == nullptr ? "" : configPath);
  if (!settings().problem.empty()) return fail(ACL_ERROR_INVALID_PARAM, settings().problem);
  if (initialised.exchange(true)) return ACL_ERROR_REPEAT_INITIALIZE;
  Runtime::get();
  return ACL_SUCCESS;
}

aclError aclFinalize() {
  trace(__func__);
  if (!initialised.exchange(false)) return ACL_ERROR_REPEAT_FINALIZE;
  return ACL_SUCCESS;
}

const char* aclGetRecentErrMsg() { return take_recent_message(); }

aclError aclrtGetLastError(aclrtLastErrLevel) {
  const auto status = last_status();
  forget_last_status();
  return status;
}

aclError aclrtPeekAtLastError(aclrtLastErrLevel) { return last_status(); }

aclError aclsysGetCANNVersion(aclCANNPackageName name, aclCANNPackageVersion* version) {
  trace(__func__, name);
  const std::string text = name == ACL_PKG_NAME_DRIVER ? driver_version : settings().cann_version;
  std::memset(version, 0, sizeof(*version));
  copy_text(version->version, sizeof(version->version), text);
  copy_text(version->majorVersion, sizeof(version->majorVersion), version_part(text, 0));
  copy_text(version->minorVersion, sizeof(version->minorVersion), version_part(text, 1));
  copy_text(version->releaseVersion, sizeof(version->releaseVersion), version_part(text, 2));
  copy_text(version->patchVersion, sizeof(version->patchVersion), version_part(text, 3));
  return ACL_SUCCESS;
}

aclError aclsysGetVersionStr(char* pkgName, char* versionStr) {
  trace(__func__, pkgName);
  const bool driver = std::strcmp(pkgName, "driver") == 0;
  copy_text(versionStr, ACL_PKG_VERSION_MAX_SIZE, driver ? driver_version : settings().cann_version);
  return ACL_SUCCESS;
}

const char* aclrtGetSocName() { return settings().soc.c_str(); }

void aclAppLog(aclLogLevel logLevel, const char* func, const char* file, uint32_t line, const char* fmt, ...) {
  if (!trace_enabled()) return;
  char text[1024];
  std::va_list arguments;
  va_start(arguments, fmt);
  std::vsnprintf(text, sizeof(text), fmt, arguments);
  va_end(arguments);
  trace("log", logLevel, func, file, line, text);
}

aclError aclrtGetDeviceCount(uint32_t* count) {
  *count = device_count;
  return ACL_SUCCESS;
}

aclError aclrtSetDevice(int32_t deviceId) {
  trace(__func__, deviceId);
  if (auto failure = check_device(deviceId)) return fail(failure);
  set_current_device(deviceId);
  return ACL_SUCCESS;
}

aclError aclrtGetDevice(int32_t* deviceId) {
  const int device = current_device();
  // No message: torch_npu asks in every new thread and expects this answer.
  if (device < 0) return ACL_ERROR_RT_CONTEXT_NULL;
  *deviceId = device;
  return ACL_SUCCESS;
}

aclError aclrtResetDevice(int32_t deviceId) {
  trace(__func__, deviceId);
  if (auto failure = check_device(deviceId)) return fail(failure);
  Runtime::get().reset();
  set_current_device(-1);
  return ACL_SUCCESS;
}

aclError aclrtResetDeviceForce(int32_t deviceId) { return aclrtResetDevice(deviceId); }

aclError aclrtDeviceTaskAbort(int32_t deviceId, uint32_t) {
  trace(__func__, deviceId);
  if (auto failure = check_device(deviceId)) return fail(failure);
  Runtime::get().reset();
  return ACL_SUCCESS;
}

// A context is named by its device: there is one for each.
aclError aclrtGetCurrentContext(aclrtContext* context) {
  const int device = current_device();
  if (device < 0) return ACL_ERROR_RT_CONTEXT_NULL;
  *context = reinterpret_cast<aclrtContext>(static_cast<std::intptr_t>(device) + 1);
  return ACL_SUCCESS;
}

aclError aclrtSetCurrentContext(aclrtContext context) {
  trace(__func__, context);
  const auto device = static_cast<int>(reinterpret_cast<std::intptr_t>(context)) - 1;
  if (auto failure = check_device(device)) return fail(failure);
  set_current_device(device);
  return ACL_SUCCESS;
}

aclError aclrtGetPrimaryCtxState(int32_t deviceId, uint32_t* flags, int32_t* active) {
  if (auto failure = check_device(deviceId)) return fail(failure);
  if (flags != nullptr) *flags = 0;
  *active = initialised.load() ? 1 : 0;
  return ACL_SUCCESS;
}

aclError aclrtSetSysParamOpt(aclSysParamOpt opt, int64_t value) {
  trace(__func__, opt, value);
  if (auto failure = check_option(opt)) return fail(failure);
  system_options[opt] = value;
  return ACL_SUCCESS;
}

aclError aclrtGetSysParamOpt(aclSysParamOpt opt, int64_t* value) {
  if (auto failure = check_option(opt)) return fail(failure);
  *value = system_options[opt];
  return ACL_SUCCESS;
}

aclError aclrtCtxSetSysParamOpt(aclSysParamOpt opt, int64_t value) { return aclrtSetSysParamOpt(opt, value); }

aclError aclrtCtxGetSysParamOpt(aclSysParamOpt opt, int64_t* value) { return aclrtGetSysParamOpt(opt, value); }

aclError aclrtGetDeviceInfo(uint32_t deviceId, aclrtDevAttr attr, int64_t* value) {
  if (auto failure = check_device(static_cast<int>(deviceId))) return fail(failure);
  switch (static_cast<int>(attr)) {
    case ACL_DEV_ATTR_AICORE_CORE_NUM:
    case ACL_DEV_ATTR_CUBE_CORE_NUM:
      *value = cube_cores;
      return ACL_SUCCESS;
    case ACL_DEV_ATTR_VECTOR_CORE_NUM:
      *value = vector_cores;
      return ACL_SUCCESS;
    case ACL_DEV_ATTR_TOTAL_GLOBAL_MEM_SIZE:
      *value = static_cast<int64_t>(Runtime::get().memory.capacity_nbytes());
      return ACL_SUCCESS;
    case ACL_DEV_ATTR_L2_CACHE_SIZE:
      *value = l2_nbytes;
      return ACL_SUCCESS;
    default:
      *value = 0;
      return ACL_SUCCESS;
  }
}

aclError aclGetDeviceCapability(uint32_t deviceId, aclDeviceInfo deviceInfo, int64_t* value) {
  if (auto failure = check_device(static_cast<int>(deviceId))) return fail(failure);
  switch (deviceInfo) {
    case ACL_DEVICE_INFO_AI_CORE_NUM:
      *value = cube_cores;
      return ACL_SUCCESS;
    case ACL_DEVICE_INFO_VECTOR_CORE_NUM:
      *value = vector_cores;
      return ACL_SUCCESS;
    case ACL_DEVICE_INFO_L2_SIZE:
      *value = l2_nbytes;
      return ACL_SUCCESS;
    case ACL_DEVICE_INFO_UNDEFINED:
      break;
  }
  return fail(ACL_ERROR_INVALID_PARAM, "unknown device capability " + std::to_string(deviceInfo));
}

aclError aclGetCannAttributeList(const aclCannAttr** cannAttrList, size_t* num) {
  static const aclCannAttr available[] = {ACL_CANN_ATTR_INF_NAN, ACL_CANN_ATTR_BF16};
  *cannAttrList = available;
  *num = std::size(available);
  return ACL_SUCCESS;
}

aclError aclGetCannAttribute(aclCannAttr cannAttr, int32_t* value) {
  *value = cannAttr == ACL_CANN_ATTR_INF_NAN || cannAttr == ACL_CANN_ATTR_BF16;
  return ACL_SUCCESS;
}

aclError aclrtGetDeviceResLimit(int32_t deviceId, aclrtDevResLimitType type, uint32_t* value) {
  if (auto failure = check_device(deviceId)) return fail(failure);
  *value = static_cast<uint32_t>(type == ACL_RT_DEV_RES_CUBE_CORE ? cube_cores : vector_cores);
  return ACL_SUCCESS;
}

aclError aclrtGetStreamResLimit(aclrtStream, aclrtDevResLimitType type, uint32_t* value) {
  return aclrtGetDeviceResLimit(0, type, value);
}

aclError aclrtGetResInCurrentThread(aclrtDevResLimitType type, uint32_t* value) {
  return aclrtGetDeviceResLimit(0, type, value);
}

aclError aclrtDeviceGetBareTgid(int32_t* pid) {
  *pid = static_cast<int32_t>(::getpid());
  return ACL_SUCCESS;
}

aclError aclrtDeviceGetUuid(int32_t deviceId, aclrtUuid* uuid) {
  if (auto failure = check_device(deviceId)) return fail(failure);
  static constexpr char bytes[sizeof(aclrtUuid::bytes)] = "simcann-device0";
  std::memcpy(uuid->bytes, bytes, sizeof(bytes));
  return ACL_SUCCESS;
}

aclError aclrtDeviceCanAccessPeer(int32_t* canAccessPeer, int32_t, int32_t) {
  *canAccessPeer = 0;  // there is no other device
  return ACL_SUCCESS;
}

aclError aclrtDeviceEnablePeerAccess(int32_t peerDeviceId, uint32_t) {
  return fail(ACL_ERROR_RT_FEATURE_NOT_SUPPORT, "there is no peer device " + std::to_string(peerDeviceId));
}

aclError aclrtGetLogicDevIdByUserDevId(const int32_t userDevid, int32_t* const logicDevId) {
  if (auto failure = check_device(userDevid)) return fail(failure);
  *logicDevId = userDevid;
  return ACL_SUCCESS;
}

aclError aclrtGetDeviceUtilizationRate(int32_t deviceId, aclrtUtilizationInfo* utilizationInfo) {
  if (auto failure = check_device(deviceId)) return fail(failure);
  *utilizationInfo = {};
  return ACL_SUCCESS;
}

// Accepted and without effect: what they set has no counterpart here.

aclError aclrtSetDeviceSatMode(aclrtFloatOverflowMode mode) {
  trace(__func__, mode);
  return ACL_SUCCESS;
}

aclError aclrtSetOpWaitTimeout(uint32_t timeout) {
  trace(__func__, timeout);
  return ACL_SUCCESS;
}

aclError aclrtSetOpExecuteTimeOut(uint32_t timeout) {
  trace(__func__, timeout);
  return ACL_SUCCESS;
}

aclError aclrtSetOpExecuteTimeOutV2(uint64_t timeout, uint64_t* actualTimeout) {
  trace(__func__, timeout);
  *actualTimeout = timeout;
  return ACL_SUCCESS;
}

aclError aclmdlInitDump() { return ACL_SUCCESS; }

aclError aclmdlSetDump(const char* dumpCfgPath) {
  trace(__func__, dumpCfgPath);
  return ACL_SUCCESS;
}

aclError aclmdlFinalizeDump() { return ACL_SUCCESS; }

}  // extern "C"
