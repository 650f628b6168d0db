// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "export.h"

namespace simcuda {

// What a cublasHandle_t points to.
struct CublasHandle {
  void* workspace = nullptr;  // device memory; null before torch gave it one
  std::size_t workspace_nbytes = 0;
};

}  // namespace simcuda
