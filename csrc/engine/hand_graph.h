// A graph captured by hand: a tape over memory that its user holds too.
#pragma once

#include <c10/core/Storage.h>

#include <memory>
#include <optional>
#include <vector>

#include "../internals/tensors.h"
#include "inputs.h"
#include "replay_lock.h"
#include "settings.h"
#include "tape.h"

namespace airgraph {

class HandGraph {
 public:
  HandGraph(std::shared_ptr<Tape> tape, std::shared_ptr<ReplayLock> pool_lock)
      : replay_lock(std::move(pool_lock)), tape_(std::move(tape)) {}

  const std::shared_ptr<ReplayLock> replay_lock;

  // The tape reads or writes this storage where it lies now. Keeps it alive.
  void add_memory(const c10::Storage& storage) { memory_.push_back({storage, storage.data(), storage.nbytes()}); }

  // The tape writes a tensor: each replay is counted as an operator in place would be.
  void add_written(const WriteCounter& count) { written_.push_back(count); }

  // See `Tape::is_quick`.
  bool is_quick() const { return tape_->is_quick(); }

  // Replays, under the replay lock, unless memory that it uses was freed, resized or replaced; then `index` is that in
  // the order in which it was added.
  std::optional<Problem> replay() {
    for (size_t i = 0; i < memory_.size(); ++i) {
      const auto& [storage, address, nbytes] = memory_[i];
      if (storage.data() != address || storage.nbytes() != nbytes) {
        return Problem{Problem::Kind::lost, i};
      }
    }
    if (settings() != captured_settings_) {
      return Problem{Problem::Kind::settings};
    }
    for (auto& count : written_) {
      count.add();
    }
    tape_->replay();
    return std::nullopt;
  }

 private:
  struct Memory {
    c10::Storage storage;
    const void* address;
    size_t nbytes;
  };
  const std::shared_ptr<Tape> tape_;
  const uint64_t captured_settings_ = settings();
  std::vector<Memory> memory_;
  std::vector<WriteCounter> written_;
};

}  // namespace airgraph
