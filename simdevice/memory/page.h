// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace simdevice {

inline constexpr std::size_t page = 4096;

}  // namespace simdevice
