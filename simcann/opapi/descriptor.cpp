// Creates, reads and destroys descriptors: the functions that torch_npu looks up by name before any operator.
#include "descriptor.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>

#include "../src/device.h"
#include "status.h"

namespace simcann::opapi {
namespace {

// Codes of the public enum aclDataType.
constexpr std::array<std::pair<int, at::ScalarType>, 20> DATA_TYPES{{
    {0, at::kFloat},
    {1, at::kHalf},
    {2, at::kChar},
    {3, at::kInt},
    {4, at::kByte},
    {6, at::kShort},
    {7, at::kUInt16},
    {8, at::kUInt32},
    {9, at::kLong},
    {10, at::kUInt64},
    {11, at::kDouble},
    {12, at::kBool},
    {16, at::kComplexFloat},
    {17, at::kComplexDouble},
    {27, at::kBFloat16},
    {33, at::kComplexHalf},
    {35, at::kFloat8_e5m2},
    {36, at::kFloat8_e4m3fn},
    {37, at::kFloat8_e8m0fnu},
    {40, at::kFloat4_e2m1fn_x2},
}};

template <typename T>
T read(const void* value) {
  T result;
  std::memcpy(&result, value, sizeof(T));
  return result;
}

// The four types that a torch scalar has.
std::optional<at::Scalar> read_scalar(const void* value, at::ScalarType type) {
  switch (type) {
    case at::kDouble:
      return read<double>(value);
    case at::kLong:
      return read<int64_t>(value);
    case at::kBool:
      return read<bool>(value);
    case at::kComplexDouble:
      return read<c10::complex<double>>(value);
    default:
      return std::nullopt;
  }
}

template <typename Descriptor, typename T>
Descriptor* create_array(const T* value, uint64_t size) {
  return new Descriptor{{value, value + size}};
}

template <typename Descriptor>
Status destroy(const Descriptor* descriptor) {
  delete descriptor;
  return SUCCESS;
}

template <typename List>
Status destroy_list(const List* list) {
  if (list != nullptr) {
    for (const auto* element : list->elements) {
      delete element;
    }
  }
  return destroy(list);
}

}  // namespace

std::optional<at::ScalarType> scalar_type(int acl_data_type) {
  for (const auto& [code, type] : DATA_TYPES) {
    if (code == acl_data_type) {
      return type;
    }
  }
  return std::nullopt;
}

}  // namespace simcann::opapi

using namespace simcann;
using namespace simcann::opapi;

extern "C" {

SIMCANN_EXPORT aclTensor* aclCreateTensor(const int64_t* view_dims, uint64_t view_dims_num, int data_type,
                                          const int64_t* stride, int64_t offset, int /*format*/,
                                          const int64_t* storage_dims, uint64_t storage_dims_num, void* tensor_data) {
  const auto dtype = scalar_type(data_type);
  if (!dtype) {
    fail(PARAM_INVALID, "simcann: aclCreateTensor: no kernel can read aclDataType " + std::to_string(data_type) +
                            "; supported types are listed in simcann/opapi/descriptor.cpp");
    return nullptr;
  }
  auto record = std::make_shared<TensorRecord>();
  record->sizes.assign(view_dims, view_dims + view_dims_num);
  record->strides.assign(stride, stride + view_dims_num);
  record->offset = offset;
  record->dtype = *dtype;
  record->storage = tensor_data;
  record->storage_sizes.assign(storage_dims, storage_dims + storage_dims_num);
  return new aclTensor{std::move(record)};
}

SIMCANN_EXPORT aclScalar* aclCreateScalar(void* value, int data_type) {
  const auto dtype = scalar_type(data_type);
  const auto scalar = dtype && value != nullptr ? read_scalar(value, *dtype) : std::nullopt;
  if (!scalar) {
    fail(PARAM_INVALID, "simcann: aclCreateScalar: no scalar of aclDataType " + std::to_string(data_type));
    return nullptr;
  }
  return new aclScalar{*scalar};
}

SIMCANN_EXPORT aclIntArray* aclCreateIntArray(const int64_t* value, uint64_t size) {
  return create_array<aclIntArray>(value, size);
}

SIMCANN_EXPORT aclBoolArray* aclCreateBoolArray(const bool* value, uint64_t size) {
  return create_array<aclBoolArray>(value, size);
}

SIMCANN_EXPORT aclTensorList* aclCreateTensorList(const aclTensor* const* value, uint64_t size) {
  return new aclTensorList{{value, value + size}};
}

SIMCANN_EXPORT aclScalarList* aclCreateScalarList(const aclScalar* const* value, uint64_t size) {
  return new aclScalarList{{value, value + size}};
}

SIMCANN_EXPORT Status aclDestroyTensor(const aclTensor* tensor) { return destroy(tensor); }
SIMCANN_EXPORT Status aclDestroyScalar(const aclScalar* scalar) { return destroy(scalar); }
SIMCANN_EXPORT Status aclDestroyIntArray(const aclIntArray* array) { return destroy(array); }
SIMCANN_EXPORT Status aclDestroyBoolArray(const aclBoolArray* array) { return destroy(array); }
SIMCANN_EXPORT Status aclDestroyTensorList(const aclTensorList* list) { return destroy_list(list); }
SIMCANN_EXPORT Status aclDestroyScalarList(const aclScalarList* list) { return destroy_list(list); }

// The caller frees the copy with delete[].
SIMCANN_EXPORT Status aclGetViewShape(const aclTensor* tensor, int64_t** view_dims, uint64_t* view_dims_num) {
  const auto& sizes = tensor->record->sizes;
  *view_dims = new int64_t[sizes.size()];
  std::copy(sizes.begin(), sizes.end(), *view_dims);
  *view_dims_num = sizes.size();
  return SUCCESS;
}

}  // extern "C"
