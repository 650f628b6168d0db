// SPDX-License-Identifier: Apache-2.0
// Which parts of a range of numbers are free: first fit, neighbours are joined again.
#pragma once

#include <cstddef>
#include <map>
#include <optional>

namespace simdevice {

class Extents {
 public:
  explicit Extents(std::size_t size) {
    if (size > 0) free_.emplace(0, size);
  }

  // The start of `size` free numbers, a multiple of `alignment` (a power of two); nothing if there is no such place.
  std::optional<std::size_t> take(std::size_t size, std::size_t alignment);
  void give_back(std::size_t start, std::size_t size);

 private:
  std::map<std::size_t, std::size_t> free_;  // start -> size
};

}  // namespace simdevice
