// What the opaque pointers of an aclnn call point to.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace simcann::opapi {

// Room for five without an allocation: descriptors are made for every call.
using Dims = c10::SmallVector<int64_t, 5>;

// A tensor as aclCreateTensor was told: a strided view of device storage. Sizes, strides and the offset count elements.
struct TensorRecord {
  Dims sizes;
  Dims strides;
  int64_t offset = 0;
  at::ScalarType dtype = at::ScalarType::Undefined;
  void* storage = nullptr;
  Dims storage_sizes;
};

// The element type of an aclDataType; nullopt if torch has no such type.
std::optional<at::ScalarType> scalar_type(int acl_data_type);

}  // namespace simcann::opapi

// Descriptors die right after the launch, before the kernel runs: kernels share the record.
struct aclTensor {
  std::shared_ptr<simcann::opapi::TensorRecord> record;
};

struct aclScalar {
  at::Scalar value;
};

struct aclIntArray {
  std::vector<int64_t> values;
};

struct aclBoolArray {
  std::vector<uint8_t> values;
};

// A list owns its elements.
struct aclTensorList {
  std::vector<const aclTensor*> elements;
};

struct aclScalarList {
  std::vector<const aclScalar*> elements;
};
