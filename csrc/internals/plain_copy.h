// A device's own asynchronous copy of bytes, called without PyTorch's dispatcher.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <cstddef>

namespace airgraph {

class PlainCopy {
 public:
  // That of a device; null where it has none that is known here.
  static const PlainCopy* of(c10::Device device);

  // Whether any are used at all; for measurements.
  static void allow(bool allowed);

  // From memory of the device to other memory of it, in the order of the stream. Work that PyTorch keeps in a queue of
  // its own before it gives it to the stream is handed over first. Throws where the device refuses.
  void run(const c10::Stream& stream, void* target, const void* source, size_t nbytes) const;

  // Up to how many copies are quicker than one launch for all.
  size_t few() const { return few_; }

 private:
  using Cuda = int (*)(void*, const void*, size_t, int, void*);
  using Ascend = int (*)(void*, size_t, const void*, size_t, int, void*);
  Cuda cuda_ = nullptr;
  Ascend ascend_ = nullptr;
  size_t few_ = 0;
};

}  // namespace airgraph
