// What a compiled call does around a replay: check addresses, copy user inputs, hand out outputs.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "inputs.h"
#include "live_outputs.h"
#include "tape.h"

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

class Launch {
 public:
  Launch(std::shared_ptr<Tape> tape, LiveOutputs policy, std::shared_ptr<Neighbours> neighbours)
      : tape_(std::move(tape)), policy_(policy), neighbours_(std::move(neighbours)) {}
  Launch(const Launch&) = delete;
  Launch& operator=(const Launch&) = delete;
  ~Launch();

  Inputs inputs;

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
        copy_input(input.buffer, at(input.index));
      }
      return;
    }
    // All sources before the first copy: the user may have swapped the tensors.
    std::vector<at::Tensor> sources;
    for (const auto& input : inputs.copied()) {
      sources.push_back(inputs.source(input, at(input.index)));
    }
    for (size_t i = 0; i < sources.size(); ++i) {
      copy_input(inputs.copied()[i].buffer, sources[i]);
    }
  }

  void renew_outputs();
  static void copy_input(const at::Tensor& buffer, const at::Tensor& arg);
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
};

}  // namespace airgraph
