// What a compiled call does around the replay of a device's own graph: check addresses, copy user inputs, hand out
// outputs. It knows no device: all it asks of one goes through the dispatcher.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <optional>
#include <vector>

#include "inputs.h"

namespace airgraph {

class DeviceLaunch {
 public:
  Inputs inputs;

  // `slot` is what the graph writes; outputs handed out share its storage.
  void add_output(const at::Tensor& slot);

  // One launch on the device for all inputs whatever their dtypes, none if there is nothing to copy.
  template <class Arguments>
  void copy_inputs(const Arguments& at) const {
    std::vector<at::Tensor> targets;
    std::vector<at::Tensor> sources;
    for (const auto& input : inputs.copied()) {
      const at::Tensor& arg = at(input.index);
      if (arg.const_data_ptr() != input.buffer.const_data_ptr()) {
        targets.push_back(input.buffer);
        sources.push_back(arg);
      }
    }
    copy(targets, sources);
  }

  // Fresh tensors over the slots.
  std::vector<at::Tensor> outputs() const;

  // Positions of the slots whose storage the caller still holds, one slot a storage. A storage that Python has looked
  // at through untyped_storage() counts as held: its wrapper holds it.
  std::vector<size_t> held_outputs() const;

  // Whether the caller resized or freed the memory of an output, which the graph would write all the same.
  bool lost_outputs() const;

  // Before a replay. The work of the last call, on whatever stream, comes before what the current stream does from now
  // on: buffers, pool and outputs are the same. Outputs that the caller holds are given away.
  void prepare(bool give_held_away);

  // After a replay, with the outputs handed out. Once a graph was called on several streams, they are given away at
  // once: a reader on one stream cannot be seen from a call on another.
  void settle();

  // Moves the storage behind `slot`, which the caller holds, to memory of its own by a copy on the current stream, and
  // takes the memory that the graph writes into a storage of ours. The caller's tensors and all their views stay valid.
  void give_away(size_t slot);

 private:
  static void copy(std::vector<at::Tensor>& targets, std::vector<at::Tensor>& sources);

  struct Shared {
    size_t slot;   // the first over this storage
    size_t count;  // how many slots are
    const void* memory;
    size_t nbytes;
  };

  std::vector<at::Tensor> slots_;
  std::vector<Shared> storages_;
  std::optional<c10::Stream> last_stream_;
  bool several_streams_ = false;
};

}  // namespace airgraph
