// The check of a call's arguments against a capture, and the buffers that user inputs are copied into.
#pragma once

#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/core/Tensor.h>

#include <c10/util/SmallVector.h>
#include <torch/csrc/autograd/forward_grad.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "overlap.h"

namespace airgraph {

// How closely an argument must have the strides that the capture was made for.
enum class Strides {
  exact,    // all of them: something in the graph looks at them
  elements, // where the elements lie: the stride of a single element says nothing
  order     // the order of its dimensions: it is copied into a dense buffer, nothing looks at its strides, and who traced
            // the program compares them if they matter
};

// All that a capture took for granted of an argument but its address and its values.
struct Form {
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
  at::ScalarType dtype;
  at::Device device;
  bool conj = false, neg = false;
  Strides comparison = Strides::elements;
  // Where something in the graph counts from the beginning of the storage.
  std::optional<int64_t> offset;  // elements
  std::optional<size_t> storage_nbytes;

  static Form of(const at::Tensor& like, Strides comparison, bool with_offset, bool with_storage) {
    Form form{like.sizes().vec(), like.strides().vec(), like.scalar_type(), like.device(), like.is_conj(), like.is_neg(),
              comparison,         std::nullopt,         std::nullopt};
    if (comparison == Strides::order) {
      form.strides = at::infer_dense_strides(like.sizes(), like.strides());
    }
    if (with_offset || with_storage) {
      form.offset = like.storage_offset();
    }
    if (with_storage) {
      form.storage_nbytes = like.storage().nbytes();
    }
    return form;
  }

  bool is_of(const at::Tensor& arg) const {
    return arg.sizes() == sizes && arg.scalar_type() == dtype && arg.device() == device && arg.is_conj() == conj &&
           arg.is_neg() == neg && (!offset || arg.storage_offset() == *offset) &&
           (!storage_nbytes || arg.storage().nbytes() == *storage_nbytes) && has_strides(arg);
  }

 private:
  bool has_strides(const at::Tensor& arg) const {
    const auto given = arg.strides();
    if (given == at::IntArrayRef(strides)) {
      return true;
    }
    switch (comparison) {
      case Strides::exact:
        return false;
      case Strides::elements:
        for (size_t dim = 0; dim < strides.size(); ++dim) {
          if (given[dim] != strides[dim] && sizes[dim] > 1) {
            return false;
          }
        }
        return true;
      case Strides::order:
        return at::has_internal_overlap(arg) != at::MemOverlap::Yes &&
               at::infer_dense_strides(arg.sizes(), given) == strides;
    }
    return false;
  }
};

// Used in place: the capture holds its address, not the tensor.
struct PlacedInput {
  size_t index;
  const void* address;
  // Whether the form may change while the address stays.
  bool is_formed;
  Form form;
};

// Copied into `buffer`, which the graph owns, before each replay. A number's tensor may come from the host.
struct CopiedInput {
  size_t index;
  at::Tensor buffer;
  Form form;
  // Where the buffer was, if it is the user's own tensor; else null.
  const void* kept_at = nullptr;
  // The bytes to copy where argument and buffer have the same strides, from `begin` bytes before the first element; none
  // where elements are better copied one by one.
  size_t block_begin = 0, block_nbytes = 0;

  // Whether `arg`, which is of the form, can be copied as one block.
  bool is_block(const at::Tensor& arg) const {
    const bool lies_alike = form.comparison != Strides::order && buffer.strides() == at::IntArrayRef(form.strides);
    return block_nbytes != 0 && !form.conj && !form.neg && (lies_alike || arg.strides() == buffer.strides());
  }
};

// What keeps a capture from serving a call.
struct Problem {
  enum class Kind {
    moved,       // an argument used in place is not where it was captured
    mismatched,  // an argument has another shape, strides, dtype or device
    foreign,     // an argument is of a kind that has no memory to read: a fake tensor, a subclass, one of a transform
    overlapping  // an argument that the graph writes shares memory with another
  };
  Kind kind;
  size_t index;
};

// `at(i)` gives argument i as a const at::Tensor&.
class Inputs {
 public:
  void add(PlacedInput input) { placed_.push_back(std::move(input)); }
  void add(CopiedInput input) {
    copies_into_kept_ = copies_into_kept_ || input.kept_at != nullptr;
    copied_.push_back(std::move(input));
  }

  // The graph writes argument `index`, which is used in place and lies at `arg` now.
  void add_written(size_t index, const at::Tensor& arg) { written_.push_back({index, Span::of(arg)}); }

  // A placed argument somewhere else is the last thing to be told: all others are right then.
  template <class Arguments>
  std::optional<Problem> problem(const Arguments& at) const {
    const bool may_have_tangents = has_forward_level();
    std::optional<Problem> moved;
    for (const auto& input : placed_) {
      const at::Tensor& arg = at(input.index);
      if (is_wrapped(arg) || (may_have_tangents && has_tangent(arg))) {
        return Problem{Problem::Kind::foreign, input.index};
      }
      if (input.is_formed && !input.form.is_of(arg)) {
        return Problem{Problem::Kind::mismatched, input.index};
      }
      if (arg.const_data_ptr() != input.address && !moved) {
        moved = Problem{Problem::Kind::moved, input.index};
      }
    }
    for (const auto& input : copied_) {
      const at::Tensor& arg = at(input.index);
      if (is_wrapped(arg) || (may_have_tangents && has_tangent(arg))) {
        return Problem{Problem::Kind::foreign, input.index};
      }
      if (!input.form.is_of(arg)) {
        return Problem{Problem::Kind::mismatched, input.index};
      }
      if (input.kept_at != nullptr && input.buffer.const_data_ptr() != input.kept_at) {
        moved = Problem{Problem::Kind::moved, input.index};
      }
    }
    if (moved) {
      return moved;
    }
    return copied_that_overlaps(at);
  }

  // Whether all placed arguments have the forms that they were captured with, and nothing that the graph writes shares
  // memory with another argument; to be asked when one has moved.
  template <class Arguments>
  std::optional<Problem> problem_after_move(const Arguments& at) const {
    for (const auto& input : placed_) {
      if (!input.form.is_of(at(input.index))) {
        return Problem{Problem::Kind::mismatched, input.index};
      }
    }
    if (written_.empty() || placed_lie_apart(at)) {
      return std::nullopt;
    }
    for (const auto& written : written_) {
      for (const auto& input : placed_) {
        if (input.index != written.index && overlap(at(input.index), at(written.index))) {
          return Problem{Problem::Kind::overlapping, input.index};
        }
      }
    }
    return std::nullopt;
  }

  // The first argument copied in that shares memory with one that the graph writes: its copy would be made too early.
  template <class Arguments>
  std::optional<Problem> copied_that_overlaps(const Arguments& at) const {
    if (copies_into_kept_) {
      if (const auto problem = kept_that_is_used(at)) {
        return problem;
      }
    }
    if (written_.empty()) {
      return std::nullopt;
    }
    for (const auto& input : copied_) {
      const at::Tensor& arg = at(input.index);
      const Span span = Span::of(arg);
      for (const auto& written : written_) {
        if (span.meets(written.span) && overlap(arg, at(written.index))) {
          return Problem{Problem::Kind::overlapping, input.index};
        }
      }
    }
    return std::nullopt;
  }

  // The first tensor of the user's that is copied into although it is part of an argument which is used in place: then it
  // cannot be kept any longer.
  template <class Arguments>
  std::optional<Problem> kept_that_is_used(const Arguments& at) const {
    for (const auto& kept : copied_) {
      if (kept.kept_at == nullptr || at(kept.index).const_data_ptr() == kept.kept_at) {
        continue;
      }
      const Span span = Span::of(kept.buffer);
      for (const auto& input : placed_) {
        const at::Tensor& arg = at(input.index);
        if (span.meets(Span::of(arg)) && overlap(kept.buffer, arg)) {
          return Problem{Problem::Kind::moved, kept.index};
        }
      }
    }
    return std::nullopt;
  }

  // From now on placed arguments are expected where these are.
  template <class Arguments>
  void follow(const Arguments& at) {
    for (auto& input : placed_) {
      input.address = at(input.index).const_data_ptr();
    }
    for (auto& written : written_) {
      written.span = Span::of(at(written.index));
    }
  }

  // Where argument `index` is expected; null where it is not used in place.
  const void* address_of(size_t index) const {
    for (const auto& input : placed_) {
      if (input.index == index) {
        return input.address;
      }
    }
    for (const auto& input : copied_) {
      if (input.index == index) {
        return input.kept_at;
      }
    }
    return nullptr;
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

  // Tells autograd that the written arguments have changed, as an operator that writes in place does.
  template <class Arguments>
  void bump_versions(const Arguments& at) const {
    for (const auto& written : written_) {
      if (const at::Tensor& arg = at(written.index); !arg.is_inference()) {
        arg.unsafeGetTensorImpl()->bump_version();
      }
    }
  }

  // Whether a tensor is something else, or more, than elements in memory of its device.
  static bool is_foreign(const at::Tensor& arg) { return is_wrapped(arg) || (has_forward_level() && has_tangent(arg)); }

 private:
  // Whether forward-mode derivatives are being computed, by anyone. There is only the level 0.
  static bool has_forward_level() { return torch::autograd::ForwardADLevel::try_get_by_idx(0) != nullptr; }

  static bool has_tangent(const at::Tensor& arg) { return arg._fw_grad(0).defined(); }

  static bool is_wrapped(const at::Tensor& arg) {
    constexpr c10::DispatchKeySet foreign(
        {c10::DispatchKey::Python, c10::DispatchKey::PythonTLSSnapshot, c10::DispatchKey::Functionalize,
         c10::DispatchKey::FuncTorchGradWrapper, c10::DispatchKey::FuncTorchBatched, c10::DispatchKey::Batched,
         c10::DispatchKey::BatchedNestedTensor, c10::DispatchKey::ZeroTensor});
    constexpr c10::DispatchKeySet functionality(
        {c10::DispatchKey::Sparse, c10::DispatchKey::SparseCsr, c10::DispatchKey::Quantized,
         c10::DispatchKey::NestedTensor});
    return arg.key_set().has_any(foreign | functionality) || arg.layout() != at::kStrided;
  }

  struct Written {
    size_t index;
    Span span;
  };

  // Whether the spans of all placed arguments lie apart, which they nearly always do.
  template <class Arguments>
  bool placed_lie_apart(const Arguments& at) const {
    c10::SmallVector<Span, 64> spans;
    for (const auto& input : placed_) {
      if (at(input.index).numel() != 0) {
        spans.push_back(Span::of(at(input.index)));
      }
    }
    std::sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) { return a.begin < b.begin; });
    for (size_t i = 1; i < spans.size(); ++i) {
      if (spans[i].begin < spans[i - 1].end) {
        return false;
      }
    }
    return true;
  }

  std::vector<Written> written_;
  std::vector<PlacedInput> placed_;
  std::vector<CopiedInput> copied_;
  bool copies_into_kept_ = false;
};

}  // namespace airgraph
