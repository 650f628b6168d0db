// A weight in panels, as products of many rows read it fastest, kept as long as the weight is what it was.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "../../internals/tensors.h"

namespace airgraph {

// Where the elements of a matrix of floats lie: strides, and the distance from a tensor's first element, in elements.
struct MatrixPlace {
  int64_t k, n;
  int64_t stride_k, stride_n;
  int64_t offset;

  bool operator==(const MatrixPlace&) const = default;
};

// Which numbers a matrix within a tensor has, as far as can be told without reading them all: they are what they were
// where the tensor is the same object over the same storage at the same address, no operator has counted a write to it,
// `distrust_packed_weights` was not called since, and some numbers that are looked at are the same. Writing behind
// PyTorch's back, through `.data` or NumPy, is noticed by those alone. The objects are held weakly, so that none which
// is made later is taken for them.
class Contents {
 public:
  // The tensor counts its versions.
  Contents(const at::Tensor& tensor, const MatrixPlace& place);

  bool are_of(const at::Tensor& tensor, const MatrixPlace& place) const;

  // Whether a tensor can be asked, and holds the matrix: those of inference mode count no versions.
  static bool can_be_told(const at::Tensor& tensor, const MatrixPlace& place);

 private:
  static constexpr size_t kSamples = 8;
  using Samples = std::array<uint32_t, kSamples>;  // bits, so that NaN is equal to itself

  static Samples samples_of(const at::Tensor& tensor, const MatrixPlace& place);

  WeakTensor tensor_;
  const void* address_;
  int64_t version_;
  uint64_t trust_;
  Samples samples_;
};

// All weights may have changed, by operators that count no writes, as fused optimizers' do.
void distrust_packed_weights();

// Of one launch and one product of its tape. What several make of one weight they share, and none ever changes it: a
// replay on another thread may be reading it.
class PackedWeight {
 public:
  // matrix: what the product reads of `weight`, two-dimensional, over its storage.
  PackedWeight(const at::Tensor& weight, const at::Tensor& matrix);

  // Before each replay, on its thread: packs anew if `weight` is not what it was. Nothing is kept packed any longer
  // where that goes on at call after call, or there is no memory.
  void refresh(const at::Tensor& weight);

  // As own::BlockForm::pack lays them out; null: the matrix is to be read as it lies.
  const float* panels() const { return made_ == nullptr ? nullptr : made_->panels; }

  // Asked for while another thread replays.
  size_t nbytes() const { return nbytes_.load(std::memory_order_relaxed); }
  uintptr_t address() const { return address_.load(std::memory_order_relaxed); }

 private:
  struct Made {
    Contents contents;
    MatrixPlace place;
    std::vector<char> memory;
    const float* panels;
  };
  class Shared;

  static std::shared_ptr<const Made> make(const at::Tensor& weight, const MatrixPlace& place);

  MatrixPlace place_;
  std::shared_ptr<const Made> made_;
  std::atomic<size_t> nbytes_{0};
  std::atomic<uintptr_t> address_{0};
  int changes_ = 0;  // at calls in a row
  bool is_given_up_ = false;
};

}  // namespace airgraph
