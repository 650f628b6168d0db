// SPDX-License-Identifier: Apache-2.0
#include "simdevice/memory/extents.h"

#include <iterator>

namespace simdevice {

std::optional<std::size_t> Extents::take(std::size_t size, std::size_t alignment) {
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    const auto [start, length] = *it;
    const auto aligned = (start + alignment - 1) & ~(alignment - 1);
    const auto skipped = aligned - start;
    if (length < skipped || length - skipped < size) continue;
    free_.erase(it);
    if (skipped > 0) free_.emplace(start, skipped);
    if (const auto rest = length - skipped - size; rest > 0) free_.emplace(aligned + size, rest);
    return aligned;
  }
  return std::nullopt;
}

void Extents::give_back(std::size_t start, std::size_t size) {
  auto next = free_.lower_bound(start);
  if (next != free_.begin()) {
    const auto previous = std::prev(next);
    if (previous->first + previous->second == start) {
      start = previous->first;
      size += previous->second;
      free_.erase(previous);
    }
  }
  if (next != free_.end() && start + size == next->first) {
    size += next->second;
    free_.erase(next);
  }
  free_.emplace(start, size);
}

}  // namespace simdevice
