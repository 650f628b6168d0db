// The check of a call's arguments against a capture, and the buffers that user inputs are copied into.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

namespace airgraph {

// Used in place: the capture holds its address, not the tensor.
struct FixedInput {
  size_t index;
  const void* address;
};

// Copied into `buffer`, which the graph owns, before each replay.
struct CopiedInput {
  size_t index;
  at::Tensor buffer;
};

class Inputs {
 public:
  void add(FixedInput input) { fixed_.push_back(input); }
  void add(CopiedInput input) { copied_.push_back(std::move(input)); }

  // The index of the first fixed input that is not where it was captured.
  std::optional<size_t> moved(c10::ArrayRef<at::Tensor> args) const;
  // The index of the first copied input whose shape, dtype or device differs from the capture's.
  std::optional<size_t> mismatched(c10::ArrayRef<at::Tensor> args) const;

  const std::vector<CopiedInput>& copied() const { return copied_; }

 private:
  std::vector<FixedInput> fixed_;
  std::vector<CopiedInput> copied_;
};

}  // namespace airgraph
