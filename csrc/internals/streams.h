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

}  // namespace airgraph
