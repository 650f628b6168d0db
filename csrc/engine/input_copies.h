// The copies of inputs on a device before a replay.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "arguments.h"
#include "inputs.h"

namespace airgraph {

// One launch on the device for all inputs that are copied as blocks of bytes, whatever their dtypes; one for each other.
class InputCopies {
 public:
  // Copies `arg` into the buffer of `input`, of whose form it is. A number that comes from the host is read at once.
  void add(const Inputs& inputs, const CopiedInput& input, const at::Tensor& arg);

  // On the current stream.
  void run();

 private:
  struct Copies {
    std::vector<at::Tensor> targets;
    std::vector<at::Tensor> sources;
  };
  Copies blocks_;
  Copies elements_;
};

}  // namespace airgraph
