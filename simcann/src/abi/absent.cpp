// SPDX-License-Identifier: Apache-2.0
// Functions that torch_npu's libraries need to be loaded, for things that are not simulated: sharing memory between
// processes, launching compiled kernels, and channels to the data pipeline. Each refuses by name.
#include <acl/acl.h>
#include <acl/acl_tdt.h>

#include "status.h"

using namespace simcann;

namespace {

aclError absent(const char* function) {
  return fail(ACL_ERROR_RT_FEATURE_NOT_SUPPORT, std::string(function) + " is not simulated");
}

}  // namespace

extern "C" {

aclError aclrtMemExportToShareableHandle(aclrtDrvMemHandle, aclrtMemHandleType, uint64_t, uint64_t*) {
  return absent(__func__);
}

aclError aclrtMemImportFromShareableHandle(uint64_t, int32_t, aclrtDrvMemHandle*) { return absent(__func__); }

aclError aclrtMemSetPidToShareableHandle(uint64_t, int32_t*, size_t) { return absent(__func__); }

aclError aclrtBinaryLoadFromData(const void*, size_t, const aclrtBinaryLoadOptions*, aclrtBinHandle*) {
  return absent(__func__);
}

aclError aclrtBinaryGetFunction(const aclrtBinHandle, const char*, aclrtFuncHandle*) { return absent(__func__); }

aclError aclrtGetFunctionAddr(aclrtFuncHandle, void**, void**) { return absent(__func__); }

// The runtime below AscendCL. The headers do not declare these four; none is ever successful, so their arguments do
// not matter.
#define SIMCANN_ABSENT(function) \
  __attribute__((visibility("default"))) aclError function() { return absent(#function); }
SIMCANN_ABSENT(rtDevBinaryRegister)
SIMCANN_ABSENT(rtFunctionRegister)
SIMCANN_ABSENT(rtGetC2cCtrlAddr)
SIMCANN_ABSENT(rtKernelLaunch)
#undef SIMCANN_ABSENT

acltdtChannelHandle* acltdtCreateChannelWithCapacity(uint32_t, const char*, size_t) {
  absent(__func__);
  return nullptr;
}

aclError acltdtDestroyChannel(acltdtChannelHandle*) { return absent(__func__); }

acltdtDataset* acltdtCreateDataset() {
  absent(__func__);
  return nullptr;
}

aclError acltdtDestroyDataset(acltdtDataset*) { return absent(__func__); }

aclError acltdtReceiveTensor(const acltdtChannelHandle*, acltdtDataset*, int32_t) { return absent(__func__); }

size_t acltdtGetDatasetSize(const acltdtDataset*) { return 0; }

acltdtDataItem* acltdtGetDataItem(const acltdtDataset*, size_t) { return nullptr; }

void* acltdtGetDataAddrFromItem(const acltdtDataItem*) { return nullptr; }

size_t acltdtGetDataSizeFromItem(const acltdtDataItem*) { return 0; }

aclDataType acltdtGetDataTypeFromItem(const acltdtDataItem*) { return ACL_DT_UNDEFINED; }

size_t acltdtGetDimNumFromItem(const acltdtDataItem*) { return 0; }

aclError acltdtGetDimsFromItem(const acltdtDataItem*, int64_t*, size_t) { return absent(__func__); }

}  // extern "C"
