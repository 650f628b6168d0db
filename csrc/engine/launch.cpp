#include "launch.h"

#include <cstring>

#include "../internals/kernels.h"
#include "guard.h"

namespace airgraph {
// Memory that the caller resized or freed through its storage is not ours to write; after `release` there is none.
bool Launch::OutputStorage::lost() const {
  return !caller || caller.data() != tape.data() || caller.nbytes() != nbytes;
}

bool Launch::OutputStorage::held() const { return caller && caller.use_count() > 1; }

void Launch::OutputStorage::renew() {
  caller = new_storage(nbytes);
  point_at(tape, reinterpret_cast<uintptr_t>(caller.data()));
}

void Launch::OutputStorage::release() {
  point_at(tape, 0);
  caller = c10::Storage();
}

Launch::~Launch() {
  if (neighbours_->last == this) {
    neighbours_->last = nullptr;
  }
}

size_t Launch::add_output_storage(const at::Tensor& slot) {
  storages_.push_back({slot.storage(), c10::Storage(), slot.storage().nbytes()});
  return storages_.size() - 1;
}

void Launch::take_over() {
  if (neighbours_->last != nullptr && neighbours_->last != this) {
    for (auto& storage : neighbours_->last->storages_) {
      storage.release();
    }
  }
  neighbours_->last = this;
}

size_t Launch::held_outputs() const { return neighbours_->last == nullptr ? 0 : neighbours_->last->own_held_outputs(); }

size_t Launch::own_held_outputs() const {
  size_t count = 0;
  for (const auto& storage : storages_) {
    count += storage.held() ? 1 : 0;
  }
  return count;
}

Outcome Launch::call(const Arguments& at, const std::vector<size_t>* compared) {
  if (settings() != captured_settings_) {
    return Problem{Problem::Kind::settings};
  }
  auto problem = inputs.problem(at, compared);
  if (problem && problem->kind == Problem::Kind::moved && follows) {
    problem = follow(at);
    if (!problem) {
      problem = inputs.copied_that_overlaps(at);
    }
  }
  if (problem) {
    return *problem;
  }
  for (const auto& input : packed_) {
    input.packed->refresh(at(input.index));
  }
  inputs.bump_versions(at);
  take_over();
  renew_outputs();
  copy_inputs(at);
  tape_->replay();
  return outputs();
}

void Launch::replay() {
  take_over();
  renew_outputs();
  tape_->replay();
}

std::vector<at::Tensor> Launch::blank() {
  take_over();
  renew_outputs();
  for (auto& storage : storages_) {
    if (storage.nbytes != 0) {
      std::memset(storage.caller.mutable_data(), 0, storage.nbytes);
    }
  }
  return outputs();
}

std::optional<Problem> Launch::follow(const Arguments& at) {
  if (const auto problem = inputs.problem_after_move(at)) {
    return problem;
  }
  const auto base = [&at](const FollowedStorage::Member& member) {
    return reinterpret_cast<uintptr_t>(at(member.index).const_data_ptr()) - member.offset_bytes;
  };
  for (const auto& storage : followed_) {
    for (const auto& member : storage.members) {
      if (base(member) != base(storage.members[0])) {
        return Problem{Problem::Kind::moved, member.index};
      }
    }
  }
  for (const auto& storage : followed_) {
    point_at(storage.tape, base(storage.members[0]));
  }
  inputs.follow(at);
  return std::nullopt;
}

void Launch::copy_inputs(const Arguments& at) {
  if (!inputs.copies_into_kept()) {
    for (const auto& input : inputs.copied()) {
      copy_input(input, at(input.index));
    }
    return;
  }
  // All sources before the first copy: the user may have swapped the tensors.
  std::vector<at::Tensor> sources;
  for (const auto& input : inputs.copied()) {
    sources.push_back(inputs.source(input, at(input.index)));
  }
  for (size_t i = 0; i < sources.size(); ++i) {
    copy_input(inputs.copied()[i], sources[i]);
  }
}

void Launch::renew_outputs() {
  for (auto& storage : storages_) {
    if (storage.lost() || (policy_ == LiveOutputs::preserve && storage.held())) {
      storage.renew();
    }
  }
}

void Launch::copy_input(const CopiedInput& input, const at::Tensor& arg) {
  const auto& buffer = input.buffer;
  const bool is_buffer = arg.const_data_ptr() == buffer.const_data_ptr();
  if (input.is_block(arg)) {
    if (!is_buffer) {
      std::memcpy(static_cast<char*>(buffer.mutable_data_ptr()) - input.block_begin,
                  static_cast<const char*>(arg.const_data_ptr()) - input.block_begin, input.block_nbytes);
    }
    return;
  }
  const ReplayGuard guard;
  // The buffer itself may be seen in another way.
  const auto source = is_buffer ? arg.clone() : arg;
  if (!arg.is_conj() && !arg.is_neg()) {
    auto target = buffer;
    native::copy_(target, source, /*non_blocking=*/false);
  } else {
    buffer.copy_(source);
  }
}

std::vector<at::Tensor> Launch::outputs() const {
  std::vector<at::Tensor> results;
  results.reserve(outputs_.size());
  for (const auto& out : outputs_) {
    results.push_back(out.view.of(storages_[out.storage].caller));
  }
  return results;
}

}  // namespace airgraph
