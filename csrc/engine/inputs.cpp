#include "inputs.h"

#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <limits>

#include "../internals/derivatives.h"
#include "../internals/tensors.h"

namespace airgraph {
namespace {

bool is_wrapped(const at::Tensor& arg) {
  constexpr c10::DispatchKeySet foreign({c10::DispatchKey::Python, c10::DispatchKey::PythonTLSSnapshot,
                                         c10::DispatchKey::Functionalize, c10::DispatchKey::FuncTorchGradWrapper,
                                         c10::DispatchKey::FuncTorchBatched, c10::DispatchKey::Batched,
                                         c10::DispatchKey::BatchedNestedTensor, c10::DispatchKey::ZeroTensor});
  constexpr c10::DispatchKeySet functionality({c10::DispatchKey::Sparse, c10::DispatchKey::SparseCsr,
                                               c10::DispatchKey::Quantized, c10::DispatchKey::NestedTensor});
  return arg.key_set().has_any(foreign | functionality) || arg.layout() != at::kStrided;
}

}  // namespace

Form Form::of(const at::Tensor& like, Strides comparison, bool with_offset, bool with_storage) {
  Form form{like.sizes().vec(), like.strides().vec(), like.scalar_type(), like.device(), like.key_set(),
            like.is_conj(),     like.is_neg(),        comparison,         std::nullopt,  std::nullopt};
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

bool Form::is_of(const at::Tensor& arg) const {
  return arg.sizes() == sizes && arg.scalar_type() == dtype && arg.device() == device && arg.is_conj() == conj &&
         arg.is_neg() == neg && (!offset || arg.storage_offset() == *offset) &&
         (!storage_nbytes || arg.storage().nbytes() == *storage_nbytes) && has_strides(arg);
}

bool Form::has_strides(const at::Tensor& arg) const {
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

PlainForm::PlainForm(const Form& form)
    : keys_(form.keys), dtype_(c10::scalarTypeToTypeMeta(form.dtype)), device_(form.device), dims_(form.sizes.size()) {
  if (dims_ > kMostDims || form.offset || form.storage_nbytes) {
    dims_ = std::numeric_limits<size_t>::max();
    return;
  }
  std::copy(form.sizes.begin(), form.sizes.end(), sizes_.begin());
  std::copy(form.strides.begin(), form.strides.end(), strides_.begin());
}

bool PlainForm::is_of(const at::Tensor& arg) const {
  const auto sizes = arg.sizes(), strides = arg.strides();
  if (sizes.size() != dims_ || arg.dtype() != dtype_ || arg.device() != device_) {
    return false;
  }
  for (size_t dim = 0; dim < dims_; ++dim) {
    if (sizes[dim] != sizes_[dim] || strides[dim] != strides_[dim]) {
      return false;
    }
  }
  return true;
}

bool Inputs::is_foreign(const at::Tensor& arg) { return is_wrapped(arg) || (has_forward_level() && has_tangent(arg)); }

// A replay has driven what is read here out of the caches, and there may be hundreds: so some is asked for ahead, and
// nothing is called.
bool Inputs::are_placed_as_usual(const Arguments& at, const std::vector<size_t>* compared) const {
  constexpr size_t kNear = 12;
  constexpr size_t kFar = 24;
  constexpr size_t kLine = 64;
  const at::Tensor* const* const given = at.begin();
  const size_t size = at.size();
  const auto tensor = [&](size_t each) { return given[placed_at_[each].index]; };
  if (most_placed_ >= size) {
    return false;
  }
  const size_t count = compared == nullptr ? placed_at_.size() : compared->size();
  for (size_t i = 0; i < count; ++i) {
    if (compared == nullptr) {
      if (const auto* const far = i + kFar < count ? tensor(i + kFar) : nullptr) {
        const auto* const impl = reinterpret_cast<const char*>(impl_of(*far));
        for (size_t line = 0; line < kImplNbytes; line += kLine) {
          __builtin_prefetch(impl + line);
        }
      }
      if (const auto* const near = i + kNear < count ? tensor(i + kNear) : nullptr) {
        __builtin_prefetch(storage_impl_of(*near));
      }
    }
    const size_t each = compared == nullptr ? i : (*compared)[i];
    const auto& input = placed_at_[each];
    const auto* const arg = tensor(each);
    if (arg == nullptr || !input.plain.is_of_keys(*arg) || (input.is_formed && !input.plain.is_of(*arg)) ||
        storage_impl_of(*arg) == nullptr || airgraph::address_of(*arg) != input.address) {
      return false;
    }
  }
  return true;
}

std::optional<Problem::Kind> Inputs::problem_of_placed(size_t i, const at::Tensor& arg) const {
  const auto& [index, address, is_formed, plain] = placed_at_[i];
  if (plain.is_of_keys(arg)) {
    if (!is_formed || plain.is_of(arg)) {
      return std::nullopt;
    }
  } else if (is_wrapped(arg)) {
    return Problem::Kind::foreign;
  }
  if (is_formed && !placed_[i].form.is_of(arg)) {
    return Problem::Kind::mismatched;
  }
  return std::nullopt;
}

std::optional<Problem> Inputs::problem_at(const Arguments& at, size_t i, bool may_have_tangents) const {
  const auto& input = placed_at_[i];
  const at::Tensor& arg = at(input.index);
  if (const auto kind = problem_of_placed(i, arg)) {
    return Problem{*kind, input.index};
  }
  if (may_have_tangents && has_tangent(arg)) {
    return Problem{Problem::Kind::foreign, input.index};
  }
  if (airgraph::address_of(arg) != input.address) {
    return Problem{Problem::Kind::moved, input.index};
  }
  return std::nullopt;
}

std::optional<Problem> Inputs::problem(const Arguments& at, const std::vector<size_t>* compared) const {
  const bool may_have_tangents = has_forward_level();
  std::optional<Problem> moved;
  const auto* const looked_at = may_have_tangents ? nullptr : compared;
  if (may_have_tangents || !are_placed_as_usual(at, looked_at)) {
    const size_t count = looked_at == nullptr ? placed_at_.size() : looked_at->size();
    for (size_t i = 0; i < count; ++i) {
      const auto problem = problem_at(at, looked_at == nullptr ? i : (*looked_at)[i], may_have_tangents);
      if (problem && problem->kind != Problem::Kind::moved) {
        return problem;
      }
      moved = moved ? moved : problem;
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
  if (const auto problem = written_outside_inference_mode(at)) {
    return problem;
  }
  if (moved) {
    return moved;
  }
  return copied_that_overlaps(at);
}

std::optional<Problem> Inputs::written_outside_inference_mode(const Arguments& at) const {
  if (written_.empty() || c10::InferenceMode::is_enabled()) {
    return std::nullopt;
  }
  const auto found = std::find_if(written_.begin(), written_.end(),
                                  [&](const Written& written) { return at(written.index).is_inference(); });
  return found == written_.end() ? std::nullopt : std::optional<Problem>({Problem::Kind::mismatched, found->index});
}

std::vector<size_t> Inputs::placed_but(const std::vector<bool>& arguments) const {
  std::vector<size_t> found;
  for (size_t i = 0; i < placed_at_.size(); ++i) {
    if (const size_t index = placed_at_[i].index; index >= arguments.size() || !arguments[index]) {
      found.push_back(i);
    }
  }
  return found;
}

std::optional<Problem> Inputs::problem_after_move(const Arguments& at) const {
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

std::optional<Problem> Inputs::copied_that_overlaps(const Arguments& at) const {
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

std::optional<Problem> Inputs::kept_that_is_used(const Arguments& at) const {
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

void Inputs::follow(const Arguments& at) {
  ++times_followed_;
  for (auto& input : placed_at_) {
    input.address = at(input.index).const_data_ptr();
  }
  for (auto& written : written_) {
    written.span = Span::of(at(written.index));
  }
}

void Inputs::bump_versions(const Arguments& at) const {
  for (const auto& written : written_) {
    if (const at::Tensor& arg = at(written.index); !arg.is_inference()) {
      count_as_written(arg);
    }
  }
}

bool Inputs::placed_lie_apart(const Arguments& at) const {
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

at::Tensor Inputs::source(const CopiedInput& into, const at::Tensor& arg) const {
  if (into.kept_at != nullptr) {
    for (const auto& other : copied_) {
      if (other.index != into.index && other.kept_at != nullptr && other.buffer.is_alias_of(arg)) {
        return arg.clone();
      }
    }
  }
  return arg;
}

const void* Inputs::address_of(size_t index) const {
  for (const auto& input : placed_at_) {
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

std::optional<std::pair<size_t, size_t>> first_overlap(const Arguments& at, const std::vector<size_t>& written) {
  std::vector<Span> spans(at.size());
  for (size_t i = 0; i < at.size(); ++i) {
    if (at.is_tensor(i) && !Inputs::is_foreign(at(i))) {
      spans[i] = Span::of(at(i));
    }
  }
  for (const size_t target : written) {
    for (size_t other = 0; other < at.size(); ++other) {
      if (other != target && spans.at(target).meets(spans[other]) && overlap(at(target), at(other))) {
        return std::make_pair(target, other);
      }
    }
  }
  return std::nullopt;
}

}  // namespace airgraph
