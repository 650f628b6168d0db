// A compiled call: what it does around the replay of a device's own graph. It knows no device: all it asks of one goes
// through the dispatcher. Guarded by the replay lock of its pool.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "inputs.h"
#include "live_outputs.h"
#include "replay_lock.h"
#include "settings.h"

namespace airgraph {

class DeviceLaunch;

// What the graphs of one pool know of one another. The pool's memory is theirs in turn: the outputs of one lie where
// the next may write. Guarded by the pool's replay lock.
struct DeviceNeighbours {
  // Makes all outputs that callers hold independent of the pool, whatever the policy. They are copied on the stream of
  // the last replay, and the current stream comes after that.
  void give_away_held();

  DeviceLaunch* last = nullptr;       // replayed last, so it may have outputs with the caller
  std::optional<c10::Stream> stream;  // of the last replay
  std::optional<std::thread::id> thread;
  // Whether replays came on several streams or from several threads: then a reader cannot be seen from the next call.
  bool unseen_readers = false;
};

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
  // fresh tensors over the outputs.
  Outcome call(const Arguments& at, const std::function<void()>& replay);

  // Before a graph is captured into the pool, which may write all of its memory: the current stream comes after the
  // work of the pool's last call, and outputs that callers hold are given away.
  void begin();

  // What a call copies before the replay: one launch on the device for all inputs whatever their dtypes, none if there
  // is nothing to copy; one more for each number that comes from the host.
  void copy_inputs(const Arguments& at) const;

  // The outputs in memory of their own, copied on the current stream. The pool may not have been written since.
  std::vector<at::Tensor> moved_out();

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
  // Fresh tensors over the slots.
  std::vector<at::Tensor> outputs() const;

  // Whether the caller resized or freed the memory of an output, which the graph would write all the same.
  bool lost_outputs() const;

  // The work of the pool's last call, on whatever stream, comes before what the current stream does from now on.
  // Returns the two where they are not one.
  std::optional<std::pair<c10::Stream, c10::Stream>> follow_last_call();

  // Before the arguments are looked at. The work of the pool's last call, on whatever stream, comes before what the
  // current stream does from now on: buffers, pool and outputs are the same. Outputs that callers hold are given away,
  // by the policy of the graph that made them; an argument may be one of them.
  void prepare();

  // After a replay, with the outputs handed out. Once graphs of the pool were called on several streams or from several
  // threads, they are given away at once: what one of them reads cannot be seen from a call in another.
  void settle();

  // Positions of the slots whose storage the caller holds, one slot a storage.
  std::vector<size_t> own_held_outputs() const;

  // Moves the storage behind `slot`, which the caller holds, to memory of its own by a copy on the current stream, and
  // takes the memory that the graph writes into a storage of ours. The caller's tensors and all their views stay valid.
  void give_away(size_t slot);

  static void fill(const at::Tensor& target, const at::Tensor& number);

  // The bytes that are copied as one block, as a tensor: the tensor itself where it has no gaps.
  static at::Tensor block_of(const CopiedInput& input, const at::Tensor& tensor);
  static void copy(std::vector<at::Tensor>& targets, std::vector<at::Tensor>& sources);

  struct Shared {
    size_t slot;   // the first over this storage
    size_t count;  // how many slots are
    const void* memory;
    size_t nbytes;
  };

  std::vector<at::Tensor> slots_;
  std::vector<Shared> storages_;
  friend struct DeviceNeighbours;

  const uint64_t captured_settings_ = settings();
  c10::Device device_;
  LiveOutputs policy_;
  std::shared_ptr<DeviceNeighbours> neighbours_;
};

}  // namespace airgraph
