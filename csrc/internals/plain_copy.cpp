#include "plain_copy.h"

#include <c10/core/DeviceGuard.h>
#include <c10/util/Exception.h>
#include <dlfcn.h>

#include <atomic>
#include <limits>

#include "streams.h"

namespace airgraph {
namespace {

// From device to device, to both runtimes.
constexpr int kOnDevice = 3;

std::atomic<bool> is_allowed{true};

}  // namespace

void PlainCopy::allow(bool allowed) { is_allowed = allowed; }

const PlainCopy* PlainCopy::of(c10::Device device) {
  if (!is_allowed) {
    return nullptr;
  }
  // PyTorch's build for the device has loaded its runtime; else there is no tensor on it.
  static const PlainCopy cuda = [] {
    PlainCopy copy;
    copy.cuda_ = reinterpret_cast<Cuda>(dlsym(RTLD_DEFAULT, "cudaMemcpyAsync"));
    copy.few_ = 2;
    return copy;
  }();
  static const PlainCopy ascend = [] {
    PlainCopy copy;
    copy.ascend_ = reinterpret_cast<Ascend>(dlsym(RTLD_DEFAULT, "aclrtMemcpyAsync"));
    copy.few_ = std::numeric_limits<size_t>::max();
    return copy;
  }();
  if (device.is_cuda() && cuda.cuda_ != nullptr) {
    return &cuda;
  }
  return device.is_privateuseone() && ascend.ascend_ != nullptr ? &ascend : nullptr;
}

void PlainCopy::run(const c10::Stream& stream, void* target, const void* source, size_t nbytes) const {
  // A device's default stream may have no handle of its own, and then it is that of whichever device is the current
  // one.
  const c10::DeviceGuard current(stream.device());
  void* handle = handle_of(stream);
  const int status = cuda_ != nullptr ? cuda_(target, source, nbytes, kOnDevice, handle)
                                      : ascend_(target, nbytes, source, nbytes, kOnDevice, handle);
  TORCH_CHECK(status == 0, cuda_ != nullptr ? "cudaMemcpyAsync" : "aclrtMemcpyAsync", " of an input failed with error ",
              status);
}

}  // namespace airgraph
