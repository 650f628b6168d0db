// SPDX-License-Identifier: Apache-2.0
// A device does not outlive fork(): a child that finds it used is told so, and does not hang.
#pragma once

namespace simdevice {

// From now on there is what a child could not go on with: streams, work, or memory.
void note_use() noexcept;
bool is_used() noexcept;

// True in a child of a process that had used the device: none of its threads exists there.
bool in_forked_child() noexcept;

}  // namespace simdevice
