// How a loop is divided into parts that threads share.
#pragma once

#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdint>

namespace airgraph::own {

inline int64_t parts_of(int64_t all, int64_t each) { return (all + each - 1) / each; }

// Of `all` turns of a loop those of one part: about `most`, a multiple of `multiple`, and so that each thread has as
// many parts: none waits long for another's last.
inline int64_t turns_of_part(int64_t all, int64_t most, int64_t multiple = 1) {
  const auto rounded_up = [](int64_t number, int64_t to) { return parts_of(number, to) * to; };
  const int64_t turns = std::min(all, rounded_up(std::clamp<int64_t>(most, 1, all), multiple));
  const int64_t parts = parts_of(all, turns);
  if (parts == 1) {
    return turns;
  }
  return rounded_up(parts_of(all, rounded_up(parts, std::max(1, at::get_num_threads()))), multiple);
}

}  // namespace airgraph::own
