// What a compiled call does around a replay: check addresses, copy user inputs, hand out outputs.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "inputs.h"
#include "live_outputs.h"
#include "settings.h"
#include "tape.h"
#include "turn.h"

namespace airgraph {

// A result over memory that the caller shares with the graph until the caller drops it.
struct OwnedOutput {
  size_t storage;
  at::ScalarType dtype;
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
  int64_t offset;  // elements
  bool conj;
  bool neg;
};

class Launch;

// What the graphs of one pool know of one another: which replayed last, and so may have outputs with the caller.
// Guarded by the GIL.
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

class Launch {
 public:
  Launch(std::shared_ptr<Tape> tape, LiveOutputs policy, std::shared_ptr<Neighbours> neighbours,
         std::shared_ptr<Turn> pool_turn)
      : turn(std::move(pool_turn)),
        tape_(std::move(tape)),
        policy_(policy),
        neighbours_(std::move(neighbours)) {}
  Launch(const Launch&) = delete;
  Launch& operator=(const Launch&) = delete;
  ~Launch();

  Inputs inputs;
  const std::shared_ptr<Turn> turn;
  // For messages.
  std::string name;
  // Whether the tape is pointed at placed inputs that have moved.
  bool follows = false;
  // Those that it was captured under.
  const uint64_t captured_settings = settings();

  // The tape follows the placed inputs that lie in this storage when they move together.
  void add_followed(FollowedStorage storage) { followed_.push_back(std::move(storage)); }

  // Points the tape at placed inputs that have moved. Nothing is changed where they did not move as a whole.
  template <class Arguments>
  std::optional<Problem> follow(const Arguments& at) {
    if (const auto problem = inputs.problem_after_move(at)) {
      return problem;
    }
    const auto base = [&at](const FollowedStorage::Member& member) {
      return reinterpret_cast<uintptr_t>(at(member.index).const_data_ptr()) - member.offset_bytes;
    };
    for (const auto& storage : followed_) {
      for (const auto& member : storage.members) {
        if (base(member) != base(storage.members[0])) {
          return Problem{Problem::Kind::moved, member.index};
        }
      }
    }
    for (const auto& storage : followed_) {
      point(storage.tape, base(storage.members[0]));
    }
    inputs.follow(at);
    return std::nullopt;
  }

  // `slot` is any tensor over the storage that the tape writes; its storage is pointed at new memory
  // whenever the caller still holds the old.
  size_t add_output_storage(const at::Tensor& slot);
  void add_output(OwnedOutput output) { outputs_.push_back(std::move(output)); }

  // How many output storages of the pool's last replay the caller still holds.
  size_t held_outputs() const;

  // Memory of outputs is with the graph that replayed last: an earlier one lets go of what the caller dropped.
  void take_turn();

  // Copies inputs, replays, returns fresh tensors over the outputs. Call after the check of `inputs` and `take_turn`.
  template <class Arguments>
  std::vector<at::Tensor> run(const Arguments& at) {
    renew_outputs();
    copy_inputs(at);
    tape_->replay();
    return outputs();
  }

  // Replays on the inputs as they lie. Call after `take_turn`.
  void replay() {
    renew_outputs();
    tape_->replay();
  }

  // What `run` returns, with zeros for values; nothing is executed. Call after `take_turn`.
  std::vector<at::Tensor> blank();

  size_t output_nbytes() const;

 private:
  template <class Arguments>
  void copy_inputs(const Arguments& at) {
    if (!inputs.copies_into_kept()) {
      for (const auto& input : inputs.copied()) {
        copy_input(input, at(input.index));
      }
      return;
    }
    // All sources before the first copy: the user may have swapped the tensors.
    std::vector<at::Tensor> sources;
    for (const auto& input : inputs.copied()) {
      sources.push_back(inputs.source(input, at(input.index)));
    }
    for (size_t i = 0; i < sources.size(); ++i) {
      copy_input(inputs.copied()[i], sources[i]);
    }
  }

  void renew_outputs();
  static void copy_input(const CopiedInput& input, const at::Tensor& arg);
  static void point(const c10::Storage& tape, uintptr_t address);
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

  std::shared_ptr<Tape> tape_;
  LiveOutputs policy_;
  std::shared_ptr<Neighbours> neighbours_;
  std::vector<OutputStorage> storages_;
  std::vector<OwnedOutput> outputs_;
  std::vector<FollowedStorage> followed_;
};

}  // namespace airgraph
