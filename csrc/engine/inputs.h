// The check of a call's arguments against a capture, and the buffers that user inputs are copied into.
#pragma once

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>

#include <map>
#include <optional>
#include <vector>

namespace airgraph {

// Used in place: the capture holds its address, not the tensor.
struct FixedInput {
  size_t index;
  const void* address;
};

// Copied into `buffer`, which the graph owns, before each replay. A number's tensor may come from the host.
struct CopiedInput {
  size_t index;
  at::Tensor buffer;
  at::Device device;
  // Where the buffer was, if it is the user's own tensor; else null.
  const void* kept_at = nullptr;
};

// A user's tensor that is used in place: unlike a parameter's, its form may change from call to call.
struct FormedInput {
  size_t index;
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
  at::ScalarType dtype;
  at::Device device;
  bool conj = false, neg = false;

  bool is_of(const at::Tensor& arg) const {
    if (arg.layout() != at::kStrided || arg.sizes() != sizes || arg.scalar_type() != dtype || arg.device() != device || arg.is_conj() != conj ||
        arg.is_neg() != neg) {
      return false;
    }
    const auto given = arg.strides();
    for (size_t dim = 0; dim < strides.size(); ++dim) {
      // The stride of a single element says nothing.
      if (given[dim] != strides[dim] && sizes[dim] > 1) {
        return false;
      }
    }
    return true;
  }
};

// `at(i)` gives argument i as a const at::Tensor&.
class Inputs {
 public:
  void add(FixedInput input) { fixed_.push_back(input); }
  void add(CopiedInput input) {
    copies_into_kept_ = copies_into_kept_ || input.kept_at != nullptr;
    copied_.push_back(std::move(input));
  }
  void add(FormedInput input) { formed_.push_back(std::move(input)); }

  // The index of the first input used in place that is not where it was captured.
  template <class Arguments>
  std::optional<size_t> moved(const Arguments& at) const {
    for (const auto& input : fixed_) {
      const at::Tensor& arg = at(input.index);
      if (arg.layout() != at::kStrided || arg.const_data_ptr() != input.address) {
        return input.index;
      }
    }
    for (const auto& input : copied_) {
      if (input.kept_at != nullptr && input.buffer.const_data_ptr() != input.kept_at) {
        return input.index;
      }
    }
    return std::nullopt;
  }

  // The index of the first user input whose shape, dtype or device differs from the capture's, or that lies in what the
  // graph writes; strides count where it is used in place.
  template <class Arguments>
  std::optional<size_t> mismatched(const Arguments& at) const {
    for (const auto& input : formed_) {
      if (!input.is_of(at(input.index))) {
        return input.index;
      }
    }
    for (const auto& input : copied_) {
      const at::Tensor& arg = at(input.index);
      if (arg.layout() != at::kStrided || arg.sizes() != input.buffer.sizes() || arg.scalar_type() != input.buffer.scalar_type() ||
          arg.device() != input.device || (!apart_.empty() && lies_in_written(arg))) {
        return input.index;
      }
    }
    return std::nullopt;
  }

  const std::vector<CopiedInput>& copied() const { return copied_; }

  // Whether a buffer is a tensor of the user's.
  bool copies_into_kept() const { return copies_into_kept_; }

  // What to copy into a buffer: the argument, or a copy of it where it lies in a tensor of the user's that another
  // argument is copied into.
  at::Tensor source(const CopiedInput& into, const at::Tensor& arg) const {
    if (into.kept_at != nullptr) {
      for (const auto& other : copied_) {
        if (other.index != into.index && other.kept_at != nullptr && other.buffer.is_alias_of(arg)) {
          return arg.clone();
        }
      }
    }
    return arg;
  }

  // No argument that is copied in may share these bytes, which the graph writes: the copy would be made too early.
  void keep_apart(const void* begin, int64_t nbytes) {
    const auto first = reinterpret_cast<uintptr_t>(begin);
    apart_.emplace(first + static_cast<uintptr_t>(nbytes), first);
  }

  // The graph writes argument `index`.
  void add_written(size_t index) { written_.push_back(index); }

  // Tells autograd that the written arguments have changed, as an operator that writes in place does.
  template <class Arguments>
  void bump_versions(const Arguments& at) const {
    for (const size_t index : written_) {
      if (const at::Tensor& arg = at(index); !arg.is_inference()) {
        arg.unsafeGetTensorImpl()->bump_version();
      }
    }
  }

 private:
  bool lies_in_written(const at::Tensor& arg) const {
    if (arg.numel() == 0) {
      return false;
    }
    const auto begin = reinterpret_cast<uintptr_t>(arg.const_data_ptr());
    const auto nbytes = at::detail::computeStorageNbytes(arg.sizes(), arg.strides(), arg.itemsize());
    // The first range that ends after the argument begins.
    const auto range = apart_.upper_bound(begin);
    return range != apart_.end() && range->second < begin + nbytes;
  }

  // End to begin of ranges that share nothing.
  std::map<uintptr_t, uintptr_t> apart_;
  std::vector<size_t> written_;
  std::vector<FixedInput> fixed_;
  std::vector<CopiedInput> copied_;
  std::vector<FormedInput> formed_;
  bool copies_into_kept_ = false;
};

}  // namespace airgraph
