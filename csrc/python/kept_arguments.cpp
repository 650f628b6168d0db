#include "kept_arguments.h"

#include <torch/csrc/autograd/python_variable.h>

namespace airgraph {

Comparison KeptArguments::look(uint64_t call, const Inputs& inputs, const Arguments& given) {
  if (noted_for_ == call && times_followed_ == inputs.times_followed() && are_as_noted()) {
    return {true, others_};
  }
  noted_for_ = 0;
  if (!reader_->are_kept_as_they_were()) {
    return {};
  }
  // Calls that take turns are not worth a note.
  if (last_ != call) {
    last_ = call;
    return {true, nullptr};
  }
  if (inputs.problem(given)) {
    return {true, nullptr};
  }
  note(inputs, given.size());
  noted_for_ = call;
  return {true, others_};
}

// A replay has driven them out of the caches, so some are asked for ahead.
bool KeptArguments::are_as_noted() const {
  constexpr size_t kAhead = 8;
  const size_t count = noted_.size();
  for (size_t i = 0; i < count; ++i) {
    if (i + kAhead < count) {
      __builtin_prefetch(noted_[i + kAhead].tensor);
      noted_[i + kAhead].state.fetch_ahead();
    }
    const auto& [tensor, type, state] = noted_[i];
    if (Py_TYPE(tensor) != type || !state.is_of(THPVariable_Unpack(tensor))) {
      return false;
    }
  }
  return true;
}

void KeptArguments::note(const Inputs& inputs, size_t arguments) {
  std::vector<bool> is_kept(arguments, false);
  noted_.clear();
  for (const auto& each : reader_->kept()) {
    noted_.push_back({each.tensor, each.type, TensorState(THPVariable_Unpack(each.tensor))});
    is_kept.at(each.place) = true;
  }
  others_ = std::make_shared<const std::vector<size_t>>(inputs.placed_but(is_kept));
  times_followed_ = inputs.times_followed();
}

}  // namespace airgraph
