// A device's streams, whichever device it is.
#pragma once

#include <c10/core/impl/VirtualGuardImpl.h>

namespace airgraph {

inline c10::Stream current_stream(c10::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

// Makes a stream its device's current one; returns the one before. Throws nothing.
inline c10::Stream exchange_stream(const c10::Stream& stream) {
  return c10::impl::VirtualGuardImpl(stream.device_type()).exchangeStream(stream);
}

// The runtime's own handle; null for a default stream, which is then that of the current device.
inline void* handle_of(const c10::Stream& stream) {
  return c10::impl::VirtualGuardImpl(stream.device_type()).getStreamNativeHandle(stream);
}

inline bool has_streams(c10::Device device) { return device.type() != c10::kCPU && device.type() != c10::kMeta; }

// Whether what the stream is given now becomes part of a graph, or is refused as its capture has failed. No where that
// is not known.
bool is_capturing(const c10::Stream& stream);

// Whether that costs nothing but the question: it hands over no work that PyTorch keeps in a queue of its own.
bool tells_captures_quickly(c10::Device device);

// Whether the stream is not PyTorch's own, so that its owner may destroy it at any time.
bool is_external(const c10::Stream& stream);

// While it lives, another stream is its device's current one.
class OnStream {
 public:
  explicit OnStream(const c10::Stream& stream) : before_(exchange_stream(stream)) {}
  OnStream(const OnStream&) = delete;
  OnStream& operator=(const OnStream&) = delete;
  ~OnStream() { exchange_stream(before_); }

  const c10::Stream& before() const { return before_; }

 private:
  c10::Stream before_;
};

}  // namespace airgraph
