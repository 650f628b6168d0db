// The arguments of a cached graph that do not come with a call: compared one by one once, then at once.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <vector>

#include "../cache/call_reader.h"
#include "../engine/inputs.h"
#include "../internals/tensor_state.h"

namespace airgraph {

// What a call still has to compare.
struct Comparison {
  // Whether the arguments have the traits that they were traced with.
  bool holds = false;
  // See `Inputs::problem`; null: all.
  std::shared_ptr<const std::vector<size_t>> compared;
};

class KeptArguments {
 public:
  explicit KeptArguments(CallReader* reader) : reader_(reader) {}

  // Looks at them for a call by `call`, a number that no other has, with these inputs and arguments. Needs the GIL, and
  // the replay lock of the launch, so that nothing waits between this and the replay.
  Comparison look(uint64_t call, const Inputs& inputs, const Arguments& given);

 private:
  struct State {
    PyObject* tensor;
    PyTypeObject* type;
    TensorState state;
  };

  bool are_as_noted() const;
  void note(const Inputs& inputs, size_t arguments);

  CallReader* reader_;
  // What they are like, and which call compared them so; 0: none did.
  std::vector<State> noted_;
  uint64_t noted_for_ = 0, last_ = 0;
  // How often its tape had been pointed elsewhere by then.
  size_t times_followed_ = 0;
  // In the hands of calls that are on their way, too.
  std::shared_ptr<const std::vector<size_t>> others_;
};

}  // namespace airgraph
