// Asks for what the next steps of a tape read of their own, where the weights that it streams drive that out of the
// caches: without it each small kernel waits for its description, its tensors' and their storages'.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace airgraph {

struct Step;

class LookAhead {
 public:
  // A tensor of the step that is added next.
  void note(const at::Tensor& tensor);
  void add(const Step* step);

  // Whether a replay reads more than a core keeps.
  bool pays() const { return streamed_nbytes_ > kKept; }

  // Before the step of this number runs.
  void fetch_after(size_t step) const {
    const size_t next = step + kAhead;
    if (next < ends_.size()) {
      for (size_t i = ends_[next - 1]; i < ends_[next]; ++i) {
        __builtin_prefetch(lines_[i]);
      }
    }
  }

 private:
  static constexpr size_t kKept = size_t{2} << 20;
  static constexpr size_t kAhead = 4;

  void add_lines(const void* begin, size_t nbytes);

  std::vector<const void*> lines_;  // of the caches; only ever asked for
  std::vector<size_t> ends_;        // of a step's among them
  size_t streamed_nbytes_ = 0;
};

}  // namespace airgraph
