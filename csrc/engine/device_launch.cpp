#include "device_launch.h"

#include <ATen/ops/empty_strided.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "../internals/streams.h"
#include "../internals/tensors.h"
#include "guard.h"
#include "input_copies.h"

namespace airgraph {
namespace {

// What is copied to copy the whole storage of a tensor: the tensor, or its storage as bytes where it is but a part.
at::Tensor whole_storage_of(const at::Tensor& tensor) {
  const bool whole = tensor.is_non_overlapping_and_dense() && tensor.nbytes() == tensor.storage().nbytes();
  return whole ? tensor : bytes_of(tensor.storage(), tensor.key_set());
}

// With memory of its own. Made by the device, whose storages may hold more than memory.
at::Tensor empty_like_storage_of(const at::Tensor& tensor) {
  const auto whole = whole_storage_of(tensor);
  return at::empty_strided(whole.sizes(), whole.strides(), whole.options());
}

// Where a block that is copied in begins.
const void* begin_of(const CopiedInput& input) {
  return static_cast<const char*>(input.buffer.const_data_ptr()) - input.block_begin;
}

std::atomic<bool> devices_left{false};

}  // namespace

DeviceLaunch::~DeviceLaunch() {
  try {
    close();
  } catch (const std::exception&) {
    // The device is gone, as at the end of the process.
  }
  neighbours_->forget(this);
}

void DeviceLaunch::leave_devices() { devices_left = true; }

void DeviceLaunch::close() {
  const auto& lenders = neighbours_->lenders();
  const bool has_any = neighbours_->last() == this || std::find(lenders.begin(), lenders.end(), this) != lenders.end();
  if (has_any && !devices_left) {
    neighbours_->give_away_held();
    neighbours_->take_turn(nullptr);
  }
}

void DeviceLaunch::add_output(const at::Tensor& slot) {
  const auto known = std::find_if(storages_.begin(), storages_.end(),
                                  [&](const Shared& shared) { return share_storage(slots_[shared.slot], slot); });
  if (known == storages_.end()) {
    const auto& storage = slot.storage();
    storages_.push_back({slots_.size(), 1, storage.data(), storage.nbytes(), c10::Storage(), nullptr, std::nullopt});
    // What owned the memory is dropped, which gives it back to the pool.
    disown(storage, slot.device());
  } else {
    ++known->count;
  }
  slots_.push_back(share(slot));
}

Outcome DeviceLaunch::call(const Arguments& at, const std::function<void()>& replay,
                           const std::vector<size_t>* compared) {
  if (settings() != captured_settings_) {
    return Problem{Problem::Kind::settings};
  }
  if (captured_age_ != neighbours_->age()) {
    return Problem{Problem::Kind::outdated};
  }
  if (lost_outputs()) {
    return Problem{Problem::Kind::lost};
  }
  if (const auto problem = inputs.problem(at, compared)) {
    // One that moved may be an output of the last call, which is to be given away before it can lie anywhere else.
    return *problem;
  }
  if (meets_a_capture()) {
    return Problem{Problem::Kind::capturing};
  }
  const auto [fed_back, has_moved] = prepare(&at);
  if (has_moved) {
    if (const auto problem = inputs.problem(at)) {
      return *problem;
    }
  }
  inputs.bump_versions(at);
  copy_inputs(at);
  for (const auto& [slot, into] : fed_back) {
    neighbours_->last()->lend(slot, *into);
  }
  neighbours_->take_turn(this);
  if (!fed_back.empty()) {
    neighbours_->let_last_callers_follow();
  }
  replay();
  auto made = outputs();
  settle();
  return made;
}

void DeviceLaunch::copy_inputs(const Arguments& at) const {
  InputCopies copies;
  for (const auto& input : inputs.copied()) {
    copies.add(inputs, input, at(input.index));
  }
  copies.run();
}

void DeviceLaunch::begin() {
  neighbours_->follow_last_calls(device_);
  neighbours_->give_away_held();
  neighbours_->take_turn(nullptr);
}

std::vector<at::Tensor> DeviceLaunch::moved_out() {
  auto made = outputs();
  for (const size_t slot : own_held_outputs()) {
    give_away(slot);
  }
  neighbours_->finish_call(device_);
  return made;
}

void DeviceLaunch::captured(bool others) {
  if (others) {
    neighbours_->outdate();
  }
  captured_age_ = neighbours_->age();
}

std::vector<at::Tensor> DeviceLaunch::blank() {
  const ReplayGuard guard;
  prepare(nullptr);
  neighbours_->take_turn(this);
  auto made = outputs();
  for (auto& output : made) {
    output.zero_();
  }
  settle();
  return made;
}

std::vector<at::Tensor> DeviceLaunch::outputs() {
  if (has_streams(device_)) {
    handed_out_on_ = current_stream(device_);
  }
  std::vector<at::Tensor> made;
  made.reserve(slots_.size());
  for (const auto& slot : slots_) {
    made.push_back(share(slot));
  }
  return made;
}

std::vector<size_t> DeviceLaunch::own_held_outputs() const {
  std::vector<size_t> held;
  for (const auto& shared : storages_) {
    if (slots_[shared.slot].storage().use_count() > shared.count) {
      held.push_back(shared.slot);
    }
  }
  return held;
}

size_t DeviceLaunch::held_outputs() const {
  const auto* last = neighbours_->last();
  return last == nullptr ? 0 : last->own_held_outputs().size();
}

bool DeviceLaunch::lost_outputs() const {
  return std::any_of(storages_.begin(), storages_.end(), [this](const Shared& shared) {
    const auto& storage = slots_[shared.slot].storage();
    return storage.data() != shared.memory || storage.nbytes() != shared.nbytes;
  });
}

DeviceLaunch::Prepared DeviceLaunch::prepare(const Arguments* at) {
  auto& pool = *neighbours_;
  pool.follow_last_calls(device_);
  bool has_moved = false;
  // A copy: who has lent nothing any more leaves the list.
  for (auto* lender : std::vector<DeviceLaunch*>(pool.lenders())) {
    has_moved = lender->take_back_lent(this, at) || has_moved;
  }
  std::vector<FedBack> fed_back;
  auto* last = pool.last();
  // A graph's own replay writes over its outputs as its policy says; another's must not, unless that is "overwrite".
  const bool gives = last != nullptr && (last->policy_ == LiveOutputs::preserve ||
                                         (last != this && last->policy_ != LiveOutputs::overwrite));
  const bool may_lend = at != nullptr && gives && !pool.has_unseen_readers();
  for (const size_t slot : gives ? last->own_held_outputs() : std::vector<size_t>()) {
    const bool is_free = may_lend && last->shared_of(slot).lent_at == nullptr;
    const auto* into = is_free ? whole_copy_of(*at, last->slots_[slot].storage()) : nullptr;
    if (into != nullptr) {
      fed_back.push_back({slot, into});
    } else {
      last->give_away(slot);
      has_moved = true;
    }
  }
  if (has_moved) {
    // Who holds them may read them on the stream that made them.
    pool.let_last_callers_follow();
  }
  return {std::move(fed_back), has_moved};
}

const CopiedInput* DeviceLaunch::whole_copy_of(const Arguments& at, const c10::Storage& storage) const {
  for (const auto& input : inputs.copied()) {
    const at::Tensor& arg = at(input.index);
    if (is_over(arg, storage) && input.kept_at == nullptr && input.block_nbytes == storage.nbytes() &&
        input.is_block(arg) && arg.storage_offset() * arg.itemsize() == input.block_begin) {
      return &input;
    }
  }
  return nullptr;
}

void DeviceLaunch::settle() {
  const bool may_be_gone = handed_out_on_ && is_external(*handed_out_on_);
  if (policy_ == LiveOutputs::preserve && (may_be_gone || neighbours_->has_unseen_readers())) {
    for (const size_t slot : own_held_outputs()) {
      give_away(slot);
    }
  }
  neighbours_->finish_call(device_);
}

c10::Storage DeviceLaunch::copied_storage_of(const at::Tensor& tensor,
                                             const std::optional<c10::Stream>& handed_out_on) const {
  if (!handed_out_on || *handed_out_on == current_stream(device_) || is_external(*handed_out_on)) {
    auto fresh = empty_like_storage_of(tensor);
    fresh.copy_(whole_storage_of(tensor), /*non_blocking=*/true);
    return fresh.storage();
  }
  const auto current = current_stream(device_);
  const auto fresh = [&] {
    const OnStream there(*handed_out_on);
    return empty_like_storage_of(tensor);
  }();
  put_in_order(*handed_out_on, current);
  at::Tensor(fresh).copy_(whole_storage_of(tensor), /*non_blocking=*/true);
  put_in_order(current, *handed_out_on);
  return fresh.storage();
}

void DeviceLaunch::give_away(size_t slot) {
  const at::Tensor& tensor = slots_.at(slot);
  exchange(slot, copied_storage_of(tensor, handed_out_on_));
}

void DeviceLaunch::exchange(size_t slot, const c10::Storage& ours) {
  const at::Tensor tensor = slots_.at(slot);
  // Found before the pointers change: tensors that share a storage are known by it.
  std::vector<at::Tensor*> sharing;
  for (auto& other : slots_) {
    if (share_storage(other, tensor)) {
      sharing.push_back(&other);
    }
  }
  swap_memory(tensor.storage(), ours);
  for (auto* other : sharing) {
    move_to(*other, ours);
  }
}

DeviceLaunch::Shared& DeviceLaunch::shared_of(size_t slot) {
  return *std::find_if(storages_.begin(), storages_.end(),
                       [&](const Shared& each) { return share_storage(slots_[each.slot], slots_[slot]); });
}

void DeviceLaunch::lend(size_t slot, const CopiedInput& buffer) {
  Shared& shared = shared_of(slot);
  const c10::Storage theirs = slots_[slot].storage();
  // Only the first time: then there is what is not held any more. Made by the device, as all its storages are.
  const c10::Storage ours = shared.lent ? shared.lent : empty_like_storage_of(slots_[slot]).storage();
  point_into(ours, begin_of(buffer), buffer.buffer.storage());
  exchange(slot, ours);
  shared.lent = theirs;
  shared.lent_at = begin_of(buffer);
  shared.lent_on = handed_out_on_;
  neighbours_->add_lender(this);
}

bool DeviceLaunch::take_back_lent(const DeviceLaunch* caller, const Arguments* at) {
  bool has_moved = false;
  bool is_lender = false;
  for (auto& shared : storages_) {
    if (shared.lent_at == nullptr) {
      continue;
    }
    // The caller may have resized it or freed its memory.
    const bool is_as_lent = shared.lent.data() == shared.lent_at && shared.lent.nbytes() == shared.nbytes;
    const bool is_held = is_as_lent && shared.lent.use_count() > 1;
    if (is_held && at != nullptr && caller->copies_onto_itself(*at, shared.lent)) {
      is_lender = true;
      continue;
    }
    if (is_held) {
      const auto lent = share(slots_[shared.slot]);
      move_to(lent, shared.lent);
      const auto fresh = copied_storage_of(lent, shared.lent_on);
      swap_memory(shared.lent, fresh);
      has_moved = true;
    }
    shared.lent_at = nullptr;
    if (!is_as_lent || !is_sole_holder(shared.lent)) {
      shared.lent = c10::Storage();
    }
  }
  if (!is_lender) {
    neighbours_->remove_lender(this);
  }
  return has_moved;
}

bool DeviceLaunch::copies_onto_itself(const Arguments& at, const c10::Storage& storage) const {
  const auto* into = whole_copy_of(at, storage);
  return into != nullptr && begin_of(*into) == storage.data();
}

}  // namespace airgraph
