// The check of a call's arguments against a capture, and the buffers that user inputs are copied into.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "arguments.h"
#include "overlap.h"

namespace airgraph {

// How closely an argument must have the strides that the capture was made for.
enum class Strides {
  exact,     // all of them: something in the graph looks at them
  elements,  // where the elements lie: the stride of a single element says nothing
  order  // the order of its dimensions: it is copied into a dense buffer, nothing looks at its strides, and who traced
         // the program compares them if they matter
};

// All that a capture took for granted of an argument but its address and its values.
struct Form {
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
  at::ScalarType dtype;
  at::Device device;
  // Of the dispatcher; no condition, but what is of the same keys is no less plain.
  c10::DispatchKeySet keys;
  bool conj = false, neg = false;
  Strides comparison = Strides::elements;
  // Where something in the graph counts from the beginning of the storage.
  std::optional<int64_t> offset;  // elements
  std::optional<size_t> storage_nbytes;

  static Form of(const at::Tensor& like, Strides comparison, bool with_offset, bool with_storage);

  bool is_of(const at::Tensor& arg) const;

 private:
  bool has_strides(const at::Tensor& arg) const;
};

// What tells nearly all arguments used in place from others, with no pointer to follow: there may be hundreds a call.
class PlainForm {
 public:
  explicit PlainForm(const Form& form);

  bool is_of_keys(const at::Tensor& arg) const { return arg.key_set() == keys_; }
  // Whether an argument of these keys is of the form too. If not, it may be all the same.
  bool is_of(const at::Tensor& arg) const;

 private:
  static constexpr size_t kMostDims = 4;

  c10::DispatchKeySet keys_;
  caffe2::TypeMeta dtype_;
  at::Device device_;
  // More than there can be where the form says more than is said here.
  size_t dims_;
  std::array<int64_t, kMostDims> sizes_{}, strides_{};
};

// Used in place: the capture holds its address, not the tensor.
struct PlacedInput {
  size_t index;
  // When it was captured.
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
  // The bytes to copy where argument and buffer have the same strides, from `begin` bytes before the first element;
  // none where elements are better copied one by one.
  size_t block_begin = 0, block_nbytes = 0;

  // Into the user's own tensor, of the form, which is kept as the buffer.
  static CopiedInput into_kept(size_t index, at::Tensor theirs, Form form) {
    const auto* address = theirs.const_data_ptr();
    const size_t block = theirs.is_non_overlapping_and_dense() ? theirs.nbytes() : 0;
    return {index, std::move(theirs), std::move(form), address, 0, block};
  }

  // Whether `arg`, which is of the form, can be copied as one block.
  bool is_block(const at::Tensor& arg) const {
    const bool lies_alike = form.comparison != Strides::order && buffer.strides() == at::IntArrayRef(form.strides);
    return block_nbytes != 0 && !form.conj && !form.neg && (lies_alike || arg.strides() == buffer.strides());
  }
};

// What keeps a capture from serving a call.
struct Problem {
  enum class Kind {
    moved,        // an argument used in place is not where it was captured
    mismatched,   // an argument has another shape, strides, dtype or device
    foreign,      // an argument is of a kind that has no memory to read: a fake tensor, a subclass, one of a transform
    overlapping,  // an argument that the graph writes shares memory with another
    lost,         // memory of the graph's was resized or freed
    settings,     // torch's settings, by which kernels are chosen, are others
    outdated,     // memory that the graph writes has been taken by somebody else
    capturing     // the call would become part of a graph that somebody captures
  };
  Kind kind;
  size_t index = 0;
};

// What a call comes to: its outputs, or why nothing was done.
using Outcome = std::variant<std::vector<at::Tensor>, Problem>;

// What a launch knows of its arguments.
class Inputs {
 public:
  void add(PlacedInput input) {
    placed_at_.push_back({input.index, input.address, input.is_formed, PlainForm(input.form)});
    most_placed_ = std::max(most_placed_, input.index);
    placed_.push_back(std::move(input));
  }
  void add(CopiedInput input) {
    copies_into_kept_ = copies_into_kept_ || input.kept_at != nullptr;
    copied_nbytes_ += input.buffer.nbytes();
    copied_.push_back(std::move(input));
  }

  // The graph writes argument `index`, which is used in place and lies at `arg` now.
  void add_written(size_t index, const at::Tensor& arg) { written_.push_back({index, Span::of(arg)}); }

  // A placed argument somewhere else is the last thing to be told: all others are right then.
  // compared: the placed arguments that are not known to be as they were, by `placed_but`; null: all.
  std::optional<Problem> problem(const Arguments& at, const std::vector<size_t>* compared = nullptr) const;

  // The placed inputs that take other arguments than these.
  std::vector<size_t> placed_but(const std::vector<bool>& arguments) const;

  // Whether all placed arguments have the forms that they were captured with, and nothing that the graph writes shares
  // memory with another argument; to be asked when one has moved.
  std::optional<Problem> problem_after_move(const Arguments& at) const;

  // The first argument copied in that shares memory with one that the graph writes: its copy would be made too early.
  std::optional<Problem> copied_that_overlaps(const Arguments& at) const;

  // The first tensor of the user's that is copied into although it is part of an argument which is used in place: then
  // it cannot be kept any longer.
  std::optional<Problem> kept_that_is_used(const Arguments& at) const;

  // From now on placed arguments are expected where these are.
  void follow(const Arguments& at);
  // How often that was so.
  size_t times_followed() const { return times_followed_; }

  // Where argument `index` is expected; null where it is not used in place.
  const void* address_of(size_t index) const;

  const std::vector<CopiedInput>& copied() const { return copied_; }
  // All of them together.
  size_t copied_nbytes() const { return copied_nbytes_; }

  // Whether a buffer is a tensor of the user's.
  bool copies_into_kept() const { return copies_into_kept_; }

  // What to copy into a buffer: the argument, or a copy of it where it lies in a tensor of the user's that another
  // argument is copied into.
  at::Tensor source(const CopiedInput& into, const at::Tensor& arg) const;

  // Tells autograd that the written arguments have changed, as an operator that writes in place does.
  void bump_versions(const Arguments& at) const;

  // Whether a tensor is something else, or more, than elements in memory of its device.
  static bool is_foreign(const at::Tensor& arg);

 private:
  struct Written {
    size_t index;
    Span span;
  };

  // What each call looks at of a placed input, close together: there may be hundreds.
  struct PlacedAt {
    size_t index;
    const void* address;
    bool is_formed;
    PlainForm plain;
  };

  // Whether placed arguments are of the plain forms that they were captured with, and where they are expected. Where
  // one is not, all may be right nevertheless. compared: see `problem`.
  bool are_placed_as_usual(const Arguments& at, const std::vector<size_t>* compared) const;

  // What is the matter with the argument of placed input `i`; `moved` where it is right but lies elsewhere.
  std::optional<Problem> problem_at(const Arguments& at, size_t i, bool may_have_tangents) const;

  // Whether an argument is of the form that placed input `i` was captured with; why it is not.
  std::optional<Problem::Kind> problem_of_placed(size_t i, const at::Tensor& arg) const;

  // The first inference tensor among what is written, which PyTorch allows in inference mode alone.
  std::optional<Problem> written_outside_inference_mode(const Arguments& at) const;

  // Whether the spans of all placed arguments lie apart, which they nearly always do.
  bool placed_lie_apart(const Arguments& at) const;

  std::vector<Written> written_;
  std::vector<PlacedInput> placed_;
  std::vector<PlacedAt> placed_at_;
  size_t most_placed_ = 0;  // the last argument among them
  std::vector<CopiedInput> copied_;
  bool copies_into_kept_ = false;
  size_t copied_nbytes_ = 0;
  size_t times_followed_ = 0;
};

// Of the arguments at `written` the first that shares memory with another, and that one.
std::optional<std::pair<size_t, size_t>> first_overlap(const Arguments& at, const std::vector<size_t>& written);

}  // namespace airgraph
