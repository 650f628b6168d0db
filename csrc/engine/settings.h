// What the kernels of a tape, and the code that chooses them, take from the settings of the process and of a thread.
#pragma once

#include <cstdint>

namespace airgraph {

// One number for all of them: a capture is right for calls under the settings that it was made under.
uint64_t settings();

// Of the calling thread: whether autocast is on, and what it casts to, for each kind of device.
uint64_t autocast_settings();

}  // namespace airgraph
