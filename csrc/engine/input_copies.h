// The copies of inputs on a device before a replay.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include "inputs.h"

namespace airgraph {

// Inputs that are copied as blocks of bytes are so by the device's own copies where they are few, else by one launch
// for all, whatever their dtypes. Each other has a launch of its own.
class InputCopies {
 public:
  // Copies `arg` into the buffer of `input`, of whose form it is. A number that comes from the host is read at once.
  void add(const Inputs& inputs, const CopiedInput& input, const at::Tensor& arg);

  // On the current stream.
  void run() const;

 private:
  struct Copy {
    const CopiedInput* into;
    at::Tensor source;
  };
  void copy_blocks() const;

  c10::SmallVector<Copy, 8> blocks_;
  c10::SmallVector<Copy, 4> elements_;
};

}  // namespace airgraph
