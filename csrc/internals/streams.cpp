#include "streams.h"

#include <dlfcn.h>

namespace airgraph {
namespace {

// The runtimes' own questions. PyTorch's build for the device has loaded its runtime; else there is no stream of it.
using OfCuda = int (*)(void* stream, int* status);
using OfAscend = int (*)(void* stream, int* status, void** graph);

// CUDA's errors that only captures have, from cudaErrorStreamCaptureUnsupported to cudaErrorStreamCaptureWrongThread.
constexpr int kFirstOfCaptures = 900;
constexpr int kLastOfCaptures = 908;

OfCuda of_cuda() {
  static const auto ask = reinterpret_cast<OfCuda>(dlsym(RTLD_DEFAULT, "cudaStreamIsCapturing"));
  return ask;
}

OfAscend of_ascend() {
  static const auto ask = reinterpret_cast<OfAscend>(dlsym(RTLD_DEFAULT, "aclmdlRICaptureGetInfo"));
  return ask;
}

}  // namespace

bool tells_captures_quickly(c10::Device device) { return device.is_cuda() && of_cuda() != nullptr; }

bool is_capturing(const c10::Stream& stream) {
  const auto device = stream.device();
  if (!(device.is_cuda() && of_cuda() != nullptr) && !(device.is_privateuseone() && of_ascend() != nullptr)) {
    return false;
  }
  void* handle = handle_of(stream);
  if (handle == nullptr) {
    // A default stream, which neither runtime captures.
    return false;
  }
  int status = 0;
  if (device.is_cuda()) {
    const int error = of_cuda()(handle, &status);
    return error == 0 ? status != 0 : kFirstOfCaptures <= error && error <= kLastOfCaptures;
  }
  void* graph = nullptr;
  return of_ascend()(handle, &status, &graph) == 0 && status != 0;
}

bool is_external(const c10::Stream& stream) {
  // PyTorch numbers CUDA's own streams oddly and takes another's address for its number (c10/cuda/CUDAStream.cpp);
  // torch_npu sets a bit that is beyond its own streams'.
  constexpr c10::StreamId kAscendExternal = c10::StreamId{1} << 30;
  if (stream.device().is_cuda()) {
    return stream.id() != 0 && (stream.id() & 1) == 0;
  }
  return stream.device().is_privateuseone() && (stream.id() & kAscendExternal) != 0;
}

}  // namespace airgraph
