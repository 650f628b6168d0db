// SPDX-License-Identifier: Apache-2.0
#include "workspace.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <set>
#include <string>

#include "cublas_handle.h"
#include "device.h"

// Its header needs those of cuBLAS.
namespace at::cuda {
void* getCurrentCUDABlasHandle(bool setup);
}  // namespace at::cuda

namespace simcuda {
namespace {

const std::set<std::string> products = {
    "aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::addmv", "aten::dot", "aten::_addmm_activation",
};

// Enough to spoil whoever else has the memory.
constexpr std::size_t scribbled_nbytes = 64 << 10;

}  // namespace

Workspace Workspace::of(const c10::FunctionSchema& schema) {
  Workspace result;
  if (!products.contains(schema.name())) return result;
  const auto& handle = *static_cast<const CublasHandle*>(at::cuda::getCurrentCUDABlasHandle(true));
  result.data_ = handle.workspace;
  result.nbytes_ = std::min(handle.workspace_nbytes, scribbled_nbytes);
  return result;
}

std::uint64_t Workspace::scribble() const {
  if (data_ == nullptr) return 0;
  TORCH_CHECK(is_allocated(data_, nbytes_), "cuBLAS's workspace at ", data_, " is not allocated any more");
  static std::atomic<std::uint64_t> next{0x7ff8dead00000000};
  const auto token = next.fetch_add(1);
  auto* words = static_cast<std::uint64_t*>(host_view(data_));
  std::fill_n(words, nbytes_ / sizeof(token), token);
  return token;
}

void Workspace::check(std::uint64_t scribbled) const {
  if (data_ == nullptr) return;
  TORCH_CHECK(is_allocated(data_, nbytes_), "cuBLAS's workspace at ", data_, " was freed while a product ran");
  const auto* words = static_cast<const std::uint64_t*>(host_view(data_));
  TORCH_CHECK(std::all_of(words, words + nbytes_ / sizeof(scribbled), [&](auto word) { return word == scribbled; }),
              "cuBLAS's workspace at ", data_, " was written by something else while a product ran");
}

}  // namespace simcuda
