// What an operator library may ask of the simulated device. libascendcl implements it, libopapi uses it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#define SIMCANN_EXPORT __attribute__((visibility("default")))

namespace simcann {

using Status = int;  // an aclError; 0 is success

// The host address behind a device address: only kernels may use it. nullptr if `device` is not device memory.
SIMCANN_EXPORT void* host_view(const void* device);

// Queue a kernel on a stream; if the stream is being captured it is recorded instead. Kernels of one stream run in
// order, one at a time. A kernel that throws leaves the stream with a sticky error that names `name`.
SIMCANN_EXPORT Status launch(void* stream, std::string name, std::function<void()> kernel);

// False with SIMCANN_KERNELS=off: launches then cost their host time and do nothing.
SIMCANN_EXPORT bool kernels_enabled();

// Set this thread's message for aclGetRecentErrMsg and return `status`.
SIMCANN_EXPORT Status fail(Status status, std::string message);

}  // namespace simcann
