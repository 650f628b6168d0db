// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace simcuda {

// From now on. Once a process, when torch's allocator has been set up.
void poison_what_is_freed();

}  // namespace simcuda
