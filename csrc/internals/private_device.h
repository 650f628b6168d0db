// PyTorch's device for backends of others, PrivateUse1, as another name of a device that is here.
#pragma once

#include <c10/core/Device.h>

namespace airgraph {

// Generators, pinned memory, storages and synchronisation of PrivateUse1 are from now on those of the target, CPU or
// CUDA, for as long as the process lives. Throws where somebody else serves PrivateUse1.
void serve_private_device(c10::Device target);

}  // namespace airgraph
