// A compiled call: what it does around a replay. Guarded by the replay lock of its pool.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "../internals/tensors.h"
#include "../kernels/own/packed_weight.h"
#include "inputs.h"
#include "live_outputs.h"
#include "replay_lock.h"
#include "settings.h"
#include "tape.h"

namespace airgraph {

// A result over memory that the caller shares with the graph until the caller drops it.
struct OwnedOutput {
  size_t storage;
  TensorView view;
};

class Launch;

// What the graphs of one pool know of one another: which replayed last, and so may have outputs with the caller.
// Guarded by the pool's replay lock.
struct Neighbours {
  Launch* last = nullptr;
};

// Memory of the caller's that the tape reads and writes where it lies: the storage behind one or more placed inputs.
struct FollowedStorage {
  c10::Storage tape;  // what the tape's tensors point through; owns nothing
  // Placed inputs that lie in it, and how far from its beginning.
  struct Member {
    size_t index;
    size_t offset_bytes;
  };
  std::vector<Member> members;
};

// What products of the tape read of an argument in panels, which are made anew where the argument has changed.
struct PackedInput {
  size_t index;
  std::shared_ptr<PackedWeight> packed;
};

class Launch {
 public:
  Launch(std::shared_ptr<Tape> tape, LiveOutputs policy, std::shared_ptr<Neighbours> neighbours,
         std::shared_ptr<ReplayLock> pool_lock)
      : replay_lock(std::move(pool_lock)),
        tape_(std::move(tape)),
        policy_(policy),
        neighbours_(std::move(neighbours)) {}
  Launch(const Launch&) = delete;
  Launch& operator=(const Launch&) = delete;
  ~Launch();

  Inputs inputs;
  const std::shared_ptr<ReplayLock> replay_lock;
  // For messages.
  std::string name;
  // Whether the tape is pointed at placed inputs that have moved.
  bool follows = false;

  // One call, under the replay lock: checks the arguments, copies inputs, replays, returns fresh tensors over the
  // outputs. compared: see `Inputs::problem`.
  Outcome call(const Arguments& at, const std::vector<size_t>* compared = nullptr);

  // The tape follows the placed inputs that lie in this storage when they move together.
  void add_followed(FollowedStorage storage) { followed_.push_back(std::move(storage)); }

  void add_packed(PackedInput input) { packed_.push_back(std::move(input)); }

  // `slot` is any tensor over the storage that the tape writes; its storage is pointed at new memory
  // whenever the caller still holds the old.
  size_t add_output_storage(const at::Tensor& slot);
  void add_output(OwnedOutput output) { outputs_.push_back(std::move(output)); }

  // How many output storages of the pool's last replay the caller still holds.
  size_t held_outputs() const;

  // Replays on the inputs as they lie.
  void replay();

  // Whether so is a call, with all that it does around the replay: it packs nothing, copies little, and gives no memory
  // of another graph's outputs back. Guarded by the replay lock.
  bool is_quick() const {
    return tape_->is_quick() && packed_.empty() && inputs.copied_nbytes() <= kLittle && neighbours_->last == this;
  }

  // What `call` returns, with zeros for values; nothing is executed.
  std::vector<at::Tensor> blank();

 private:
  // Points the tape at placed inputs that have moved. Nothing is changed where they did not move as a whole.
  std::optional<Problem> follow(const Arguments& at);
  // Memory of outputs is with the graph that replayed last: an earlier one lets go of what the caller dropped.
  void take_over();
  void copy_inputs(const Arguments& at);
  void renew_outputs();
  static void copy_input(const CopiedInput& input, const at::Tensor& arg);
  std::vector<at::Tensor> outputs() const;

  struct OutputStorage {
    c10::Storage tape;    // what the tape's tensors point through; owns nothing
    c10::Storage caller;  // what outputs handed out are made of; owns the memory
    size_t nbytes;
    bool lost() const;
    bool held() const;
    void renew();
    void release();
  };

  size_t own_held_outputs() const;

  // Bytes that are copied within a microsecond or a few.
  static constexpr size_t kLittle = size_t{1} << 14;

  const uint64_t captured_settings_ = settings();
  std::shared_ptr<Tape> tape_;
  LiveOutputs policy_;
  std::shared_ptr<Neighbours> neighbours_;
  std::vector<OutputStorage> storages_;
  std::vector<OwnedOutput> outputs_;
  std::vector<FollowedStorage> followed_;
  std::vector<PackedInput> packed_;
};

}  // namespace airgraph
