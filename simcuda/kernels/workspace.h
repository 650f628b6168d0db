// SPDX-License-Identifier: Apache-2.0
// cuBLAS's workspace: a product writes there what is of no use to anybody else, while nobody else may write.
#pragma once

#include <ATen/core/function_schema.h>

#include <cstddef>
#include <cstdint>

namespace simcuda {

class Workspace {
 public:
  // That of the current stream's cuBLAS handle, which torch makes at the first product; none for other operators.
  static Workspace of(const c10::FunctionSchema& schema);

  // Write over it; returns what was written.
  std::uint64_t scribble() const;
  // Throws if something else was written meanwhile.
  void check(std::uint64_t scribbled) const;

 private:
  void* data_ = nullptr;
  std::size_t nbytes_ = 0;
};

}  // namespace simcuda
