// A compiled call: what it does around the replay of a device's own graph. It knows no device: all it asks of one goes
// through the dispatcher. Guarded by the replay lock of its pool.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "device_neighbours.h"
#include "inputs.h"
#include "live_outputs.h"
#include "replay_lock.h"
#include "settings.h"

namespace airgraph {

class DeviceLaunch {
 public:
  DeviceLaunch(c10::Device device, LiveOutputs policy, std::shared_ptr<DeviceNeighbours> neighbours,
               std::shared_ptr<ReplayLock> pool_lock)
      : replay_lock(std::move(pool_lock)), device_(device), policy_(policy), neighbours_(std::move(neighbours)) {}
  DeviceLaunch(const DeviceLaunch&) = delete;
  DeviceLaunch& operator=(const DeviceLaunch&) = delete;
  ~DeviceLaunch();

  Inputs inputs;
  const std::shared_ptr<ReplayLock> replay_lock;
  // For messages.
  std::string name;

  // One call, under the replay lock: checks the arguments, copies inputs, has the graph replayed by `replay`, returns
  // fresh tensors over the outputs. compared: see `Inputs::problem`.
  Outcome call(const Arguments& at, const std::function<void()>& replay, const std::vector<size_t>* compared = nullptr);

  // Before a graph is captured into the pool, which may write all of its memory: the current stream comes after the
  // work of the pool's last call, and outputs that callers hold are given away.
  void begin();

  // What a call copies before the replay.
  void copy_inputs(const Arguments& at) const;

  // The outputs in memory of their own, copied on the current stream. The pool may not have been written since.
  std::vector<at::Tensor> moved_out();

  // Whether a call now would become part of somebody's capture; it would not be served.
  bool meets_a_capture() const { return neighbours_->meets_a_capture(device_); }

  // It has been captured: all that lives in the pool by now is known to it. others: and was taken meanwhile, where
  // graphs captured before may write.
  void captured(bool others);

  // `slot` is what the graph writes; outputs handed out share its storage. Its memory goes back to the pool: the next
  // capture may use it too.
  void add_output(const at::Tensor& slot);

  // Makes outputs that the caller holds independent of the pool, whatever the policy.
  void close();

  // The process ends: from now on nothing is asked of a device, which may be shut down before graphs go.
  static void leave_devices();

  // What a call returns, with zeros for values; nothing is replayed.
  std::vector<at::Tensor> blank();

  // How many storages of the pool's last replay the caller still holds. A storage that Python has looked at through
  // untyped_storage() counts as held: its wrapper holds it.
  size_t held_outputs() const;

 private:
  struct Shared {
    size_t slot;   // the first over this storage
    size_t count;  // how many slots are
    const void* memory;
    size_t nbytes;
    // What was handed out before and points into a buffer, or is not held any more and is used again.
    c10::Storage lent;
    const void* lent_at;  // null: nothing is lent
    // That it was handed out on.
    std::optional<c10::Stream> lent_on;
  };

  // Fresh tensors over the slots, for a caller on the current stream.
  std::vector<at::Tensor> outputs();

  // A copy of the whole storage of `tensor`, which was handed out on a stream, made on the current one. The memory is
  // that stream's, so that whoever frees it there gives it to what comes after; it goes on when the copy is done.
  c10::Storage copied_storage_of(const at::Tensor& tensor, const std::optional<c10::Stream>& handed_out_on) const;

  // Whether this holds of a stream on which something was handed out that is lent.
  template <class Predicate>
  bool lends_to(const Predicate& holds) const {
    return std::any_of(storages_.begin(), storages_.end(), [&holds](const Shared& shared) {
      return shared.lent_at != nullptr && shared.lent_on && holds(*shared.lent_on);
    });
  }

  // Whether the caller resized or freed the memory of an output, which the graph would write all the same.
  bool lost_outputs() const;

  // An output that callers hold of the pool's last replay and that is an argument now, and what it is copied into.
  struct FedBack {
    size_t slot;
    const CopiedInput* into;
  };

  struct Prepared {
    // Outputs of the last replay that need not be given away, as they are copied anyway: to be lent.
    std::vector<FedBack> fed_back;
    // Whether anything that callers hold lies elsewhere now; it may be an argument.
    bool has_moved;
  };

  // Before the inputs are copied. The work of the pool's last calls comes before what the current stream does from now
  // on: buffers, pool and outputs are the same. Outputs that callers hold are given away, by the policy of the graph
  // that made them.
  Prepared prepare(const Arguments* at);

  // Where this launch copies what lies in this storage as a whole; null if it does not.
  const CopiedInput* whole_copy_of(const Arguments& at, const c10::Storage& storage) const;

  // After a replay, with the outputs handed out. While graphs of the pool are called from several threads, they are
  // given away at once: what one of them reads cannot be seen from a call in another. So they are on a stream that may
  // be gone at the next call.
  void settle();

  // Positions of the slots whose storage the caller holds, one slot a storage.
  std::vector<size_t> own_held_outputs() const;

  // Moves the storage behind `slot`, which the caller holds, to memory of its own by a copy on the current stream, and
  // takes the memory that the graph writes into a storage of ours. The caller's tensors and all their views stay valid.
  void give_away(size_t slot);

  // Points the storage behind `slot`, which the caller holds and which was just copied there, at an input's buffer. Its
  // values are there until the next copy into that buffer; who still holds it by then is given memory of its own.
  void lend(size_t slot, const CopiedInput& buffer);

  // Gives memory of their own to those that hold what was lent, but for an argument that is to be copied there again.
  // Returns whether there were any.
  bool take_back_lent(const DeviceLaunch* caller = nullptr, const Arguments* at = nullptr);

  // Whether all of this storage is an argument that lies in the buffer it is to be copied into.
  bool copies_onto_itself(const Arguments& at, const c10::Storage& storage) const;

  // Has the slots of this storage, which the caller holds, write into another; that takes over the memory that the
  // graph writes, and theirs gets what that had.
  void exchange(size_t slot, const c10::Storage& ours);

  Shared& shared_of(size_t slot);

  std::vector<at::Tensor> slots_;
  std::vector<Shared> storages_;
  friend class DeviceNeighbours;

  const uint64_t captured_settings_ = settings();
  // Of the pool, when it was captured.
  uint64_t captured_age_ = 0;
  // That of the last caller; none where the device has no streams.
  std::optional<c10::Stream> handed_out_on_;
  c10::Device device_;
  LiveOutputs policy_;
  std::shared_ptr<DeviceNeighbours> neighbours_;
};

}  // namespace airgraph
