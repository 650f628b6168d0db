// SPDX-License-Identifier: Apache-2.0
// The old operator interface (aclop). torch_npu falls back to it when libopapi lacks an operator, so what arrives here
// is the name of what is missing. Descriptions are kept as far as torch_npu reads them back.
#include <acl/acl.h>
#include <acl/acl_op_compiler.h>

#include <cstring>
#include <string>
#include <vector>

#include "runtime.h"
#include "status.h"
#include "simdevice/trace.h"

using namespace simcann;

struct aclTensorDesc {
  aclDataType type;
  aclFormat format;
  std::vector<std::int64_t> dims;
};

struct aclDataBuffer {
  void* data;
  std::size_t nbytes;
};

struct aclopAttr {};

namespace {

aclError no_such_operator(const char* op_type, aclrtStream handle) {
  trace("aclopCompileAndExecute", op_type, handle);
  const std::string name(op_type);
  auto message = "no such operator: " + name + " (asked for through aclop, the fallback of torch_npu). Add aclnn" +
                 name + ", or the aclnn function that torch_npu prefers for it, in simcann/opapi";
  if (const auto stream = Runtime::get().stream(handle)) {
    // Compiling is nothing that a capture can hold, whether or not the operator exists.
    if (auto failure = Runtime::get().captures.refuse_if_captured(stream, "compiling an operator")) {
      message += ". " + failure->message;
    }
  }
  return fail(ACL_ERROR_OP_NOT_FOUND, std::move(message));
}

}  // namespace

extern "C" {

aclTensorDesc* aclCreateTensorDesc(aclDataType dataType, int numDims, const int64_t* dims, aclFormat format) {
  return new aclTensorDesc{dataType, format, std::vector<std::int64_t>(dims, dims + numDims)};
}

void aclDestroyTensorDesc(const aclTensorDesc* desc) { delete desc; }

aclDataType aclGetTensorDescType(const aclTensorDesc* desc) { return desc->type; }

aclFormat aclGetTensorDescFormat(const aclTensorDesc* desc) { return desc->format; }

size_t aclGetTensorDescNumDims(const aclTensorDesc* desc) { return desc->dims.size(); }

aclError aclGetTensorDescDimV2(const aclTensorDesc* desc, size_t index, int64_t* dimSize) {
  if (index >= desc->dims.size()) return fail(ACL_ERROR_INVALID_PARAM, "no such dimension: " + std::to_string(index));
  *dimSize = desc->dims[index];
  return ACL_SUCCESS;
}

void aclSetTensorDescName(aclTensorDesc*, const char*) {}

aclError aclSetTensorFormat(aclTensorDesc*, aclFormat) { return ACL_SUCCESS; }

aclError aclSetTensorShape(aclTensorDesc*, int, const int64_t*) { return ACL_SUCCESS; }

aclError aclSetTensorPlaceMent(aclTensorDesc*, aclMemType) { return ACL_SUCCESS; }

aclDataBuffer* aclCreateDataBuffer(void* data, size_t size) { return new aclDataBuffer{data, size}; }

aclError aclDestroyDataBuffer(const aclDataBuffer* dataBuffer) {
  delete dataBuffer;
  return ACL_SUCCESS;
}

aclopAttr* aclopCreateAttr() { return new aclopAttr; }

void aclopDestroyAttr(const aclopAttr* attr) { delete attr; }

aclError aclopSetAttrBool(aclopAttr*, const char*, uint8_t) { return ACL_SUCCESS; }

aclError aclopSetAttrInt(aclopAttr*, const char*, int64_t) { return ACL_SUCCESS; }

aclError aclopSetAttrFloat(aclopAttr*, const char*, float) { return ACL_SUCCESS; }

aclError aclopSetAttrString(aclopAttr*, const char*, const char*) { return ACL_SUCCESS; }

aclError aclopSetAttrDataType(aclopAttr*, const char*, aclDataType) { return ACL_SUCCESS; }

aclError aclopSetAttrListBool(aclopAttr*, const char*, int, const uint8_t*) { return ACL_SUCCESS; }

aclError aclopSetAttrListInt(aclopAttr*, const char*, int, const int64_t*) { return ACL_SUCCESS; }

aclError aclopSetAttrListFloat(aclopAttr*, const char*, int, const float*) { return ACL_SUCCESS; }

aclError aclopSetAttrListListInt(aclopAttr*, const char*, int, const int*, const int64_t* const[]) {
  return ACL_SUCCESS;
}

aclError aclopCompileAndExecute(const char* opType, int, const aclTensorDesc* const[], const aclDataBuffer* const[],
                                int, const aclTensorDesc* const[], aclDataBuffer* const[], const aclopAttr*,
                                aclopEngineType, aclopCompileType, const char*, aclrtStream stream) {
  return no_such_operator(opType, stream);
}

aclError aclopCompileAndExecuteV2(const char* opType, int, aclTensorDesc*[], aclDataBuffer*[], int, aclTensorDesc*[],
                                  aclDataBuffer*[], aclopAttr*, aclopEngineType, aclopCompileType, const char*,
                                  aclrtStream stream) {
  return no_such_operator(opType, stream);
}

// Options of a compiler that is not here.

aclError aclSetCompileopt(aclCompileOpt opt, const char* value) {
  trace(__func__, opt, value);
  return ACL_SUCCESS;
}

size_t aclGetCompileoptSize(aclCompileOpt) { return 1; }

aclError aclGetCompileopt(aclCompileOpt, char* value, size_t length) {
  if (length == 0) return fail(ACL_ERROR_INVALID_PARAM, "no room for the value of a compile option");
  *value = '\0';
  return ACL_SUCCESS;
}

aclError aclopStartDumpArgs(uint32_t, const char*) { return ACL_SUCCESS; }

aclError aclopStopDumpArgs(uint32_t) { return ACL_SUCCESS; }

}  // extern "C"
