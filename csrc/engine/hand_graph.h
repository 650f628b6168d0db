// A graph captured by hand: a tape over memory that its user holds too.
#pragma once

#include <c10/core/Storage.h>

#include <memory>
#include <optional>
#include <vector>

#include "settings.h"
#include "tape.h"
#include "turn.h"

namespace airgraph {

class HandGraph {
 public:
  HandGraph(std::shared_ptr<Tape> of, std::shared_ptr<Turn> pool_turn) : tape(std::move(of)), turn(std::move(pool_turn)) {}

  const std::shared_ptr<Tape> tape;
  const std::shared_ptr<Turn> turn;
  const uint64_t captured_settings = settings();

  // The tape reads or writes this storage where it lies now. Keeps it alive.
  void add_memory(const c10::Storage& storage) { memory_.push_back({storage, storage.data(), storage.nbytes()}); }

  // The first storage, in the order in which they were added, whose memory was freed, resized or replaced.
  std::optional<size_t> lost() const {
    for (size_t i = 0; i < memory_.size(); ++i) {
      const auto& [storage, address, nbytes] = memory_[i];
      if (storage.data() != address || storage.nbytes() != nbytes) {
        return i;
      }
    }
    return std::nullopt;
  }

 private:
  struct Memory {
    c10::Storage storage;
    const void* address;
    size_t nbytes;
  };
  std::vector<Memory> memory_;
};

}  // namespace airgraph
