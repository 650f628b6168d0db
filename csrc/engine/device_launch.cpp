#include "device_launch.h"

#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "../internals/tensors.h"
#include "guard.h"

namespace airgraph {
namespace {

void put_in_order(const c10::Stream& first, const c10::Stream& second) {
  c10::Event done(first.device_type());
  done.record(first);
  done.block(second);
}

// Whether a tensor can be seen as bytes.
bool has_bytes(const at::Tensor& tensor) {
  return !tensor.is_conj() && !tensor.is_neg() && (tensor.dim() == 0 || tensor.stride(-1) == 1);
}

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

at::Tensor bytes_of(const at::Tensor& tensor) {
  return (tensor.dim() == 0 ? tensor.unsqueeze(0) : tensor).view(at::kByte);
}

// While it lives, the current stream is another; what that was then comes after its work.
class OnStream {
 public:
  explicit OnStream(const c10::Stream& stream)
      : guard_(stream.device_type()), own_(stream), before_(guard_.exchangeStream(stream)) {}
  OnStream(const OnStream&) = delete;
  OnStream& operator=(const OnStream&) = delete;
  ~OnStream() {
    guard_.exchangeStream(before_);
    if (own_ != before_) {
      try {
        put_in_order(own_, before_);
      } catch (const std::exception&) {
        // The device is gone, as at the end of the process.
      }
    }
  }

 private:
  c10::impl::VirtualGuardImpl guard_;
  c10::Stream own_;
  c10::Stream before_;
};

std::atomic<bool> devices_left{false};

}  // namespace

DeviceLaunch::~DeviceLaunch() {
  try {
    close();
  } catch (const std::exception&) {
    // The device is gone, as at the end of the process.
  }
}

void DeviceNeighbours::give_away_held() {
  if (last == nullptr) {
    return;
  }
  const auto held = last->own_held_outputs();
  if (held.empty()) {
    return;
  }
  // Whoever drops a graph, or captures another, may do so in any thread and on any stream.
  std::optional<OnStream> block;
  if (stream) {
    block.emplace(*stream);
  }
  for (const size_t slot : held) {
    last->give_away(slot);
  }
}

void DeviceLaunch::leave_devices() { devices_left = true; }

void DeviceLaunch::close() {
  if (!devices_left && neighbours_->last == this) {
    neighbours_->give_away_held();
    neighbours_->last = nullptr;
  }
}

void DeviceLaunch::add_output(const at::Tensor& slot) {
  const auto known = std::find_if(storages_.begin(), storages_.end(),
                                  [&](const Shared& shared) { return share_storage(slots_[shared.slot], slot); });
  if (known == storages_.end()) {
    const auto& storage = slot.storage();
    storages_.push_back({slots_.size(), 1, storage.data(), storage.nbytes()});
    // What owned the memory is dropped, which gives it back to the pool.
    disown(storage, slot.device());
  } else {
    ++known->count;
  }
  slots_.push_back(share(slot));
}

void DeviceLaunch::fill(const at::Tensor& target, const at::Tensor& number) {
  // By value: an asynchronous copy would read the host's memory after the call.
  const ReplayGuard guard;
  at::Tensor(target).fill_(number.item());
}

at::Tensor DeviceLaunch::block_of(const CopiedInput& input, const at::Tensor& tensor) {
  if (tensor.is_non_overlapping_and_dense() && tensor.nbytes() == input.block_nbytes) {
    return tensor;
  }
  const auto itemsize = static_cast<int64_t>(tensor.itemsize());
  return tensor.as_strided({static_cast<int64_t>(input.block_nbytes) / itemsize}, {1},
                           tensor.storage_offset() - static_cast<int64_t>(input.block_begin) / itemsize);
}

void DeviceLaunch::copy(std::vector<at::Tensor>& targets, std::vector<at::Tensor>& sources) {
  const ReplayGuard guard;
  if (targets.size() == 1) {
    targets[0].copy_(sources[0], /*non_blocking=*/true);
    return;
  }
  const bool mixed = std::any_of(targets.begin(), targets.end(), [&](const at::Tensor& target) {
    return target.scalar_type() != targets[0].scalar_type();
  });
  if (mixed) {
    // Lists of one dtype are copied by one launch.
    for (size_t i = 0; i < targets.size(); ++i) {
      if (has_bytes(targets[i]) && has_bytes(sources[i])) {
        targets[i] = bytes_of(targets[i]);
        sources[i] = bytes_of(sources[i]);
      }
    }
  }
  if (!targets.empty()) {
    at::_foreach_copy_(targets, sources, /*non_blocking=*/true);
  }
}

Outcome DeviceLaunch::call(const Arguments& at, const std::function<void()>& replay) {
  if (settings() != captured_settings_) {
    return Problem{Problem::Kind::settings};
  }
  if (lost_outputs()) {
    return Problem{Problem::Kind::lost};
  }
  if (const auto problem = inputs.problem(at)) {
    // One that moved may be an output of the last call, which is to be given away before it can lie anywhere else.
    return *problem;
  }
  prepare();
  if (const auto problem = inputs.problem(at)) {
    return *problem;
  }
  inputs.bump_versions(at);
  copy_inputs(at);
  replay();
  auto made = outputs();
  settle();
  return made;
}

void DeviceLaunch::copy_inputs(const Arguments& at) const {
  std::vector<at::Tensor> targets;
  std::vector<at::Tensor> sources;
  for (const auto& input : inputs.copied()) {
    const at::Tensor& arg = at(input.index);
    const bool is_buffer = arg.const_data_ptr() == input.buffer.const_data_ptr();
    if (arg.device() != input.buffer.device()) {
      fill(input.buffer, arg);
    } else if (input.is_block(arg)) {
      if (!is_buffer) {
        targets.push_back(block_of(input, input.buffer));
        sources.push_back(block_of(input, inputs.source(input, arg)));
      }
    } else {
      targets.push_back(input.buffer);
      // The buffer itself may be seen in another way.
      sources.push_back(is_buffer ? arg.clone() : inputs.source(input, arg));
    }
  }
  copy(targets, sources);
}

void DeviceLaunch::begin() {
  follow_last_call();
  neighbours_->give_away_held();
  neighbours_->last = nullptr;
}

std::vector<at::Tensor> DeviceLaunch::moved_out() {
  auto made = outputs();
  for (const size_t slot : own_held_outputs()) {
    give_away(slot);
  }
  return made;
}

std::vector<at::Tensor> DeviceLaunch::blank() {
  const ReplayGuard guard;
  prepare();
  auto made = outputs();
  for (auto& output : made) {
    output.zero_();
  }
  settle();
  return made;
}

std::vector<at::Tensor> DeviceLaunch::outputs() const {
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
  return neighbours_->last == nullptr ? 0 : neighbours_->last->own_held_outputs().size();
}

bool DeviceLaunch::lost_outputs() const {
  return std::any_of(storages_.begin(), storages_.end(), [this](const Shared& shared) {
    const auto& storage = slots_[shared.slot].storage();
    return storage.data() != shared.memory || storage.nbytes() != shared.nbytes;
  });
}

std::optional<std::pair<c10::Stream, c10::Stream>> DeviceLaunch::follow_last_call() {
  auto& pool = *neighbours_;
  std::optional<std::pair<c10::Stream, c10::Stream>> switched;
  if (device_.type() != c10::kCPU && device_.type() != c10::kMeta) {
    const c10::Stream current = c10::impl::VirtualGuardImpl(device_.type()).getStream(device_);
    const auto before = std::exchange(pool.stream, current);
    if (before && *before != current) {
      switched.emplace(*before, current);
    }
  }
  if (switched) {
    pool.unseen_readers = true;
    put_in_order(switched->first, switched->second);
  }
  const auto thread = std::this_thread::get_id();
  pool.unseen_readers = pool.unseen_readers || (pool.thread && *pool.thread != thread);
  pool.thread = thread;
  return switched;
}

void DeviceLaunch::prepare() {
  auto& pool = *neighbours_;
  const auto switched = follow_last_call();
  auto* last = std::exchange(pool.last, this);
  // A graph's own replay writes over its outputs as its policy says; another's must not, unless that is "overwrite".
  const bool gives = last != nullptr && (last->policy_ == LiveOutputs::preserve ||
                                         (last != this && last->policy_ != LiveOutputs::overwrite));
  const auto held = gives ? last->own_held_outputs() : std::vector<size_t>();
  for (const size_t slot : held) {
    last->give_away(slot);
  }
  if (switched && !held.empty()) {
    // Who holds them may read them on the stream that made them.
    put_in_order(switched->second, switched->first);
  }
}

void DeviceLaunch::settle() {
  if (policy_ == LiveOutputs::preserve && neighbours_->unseen_readers) {
    for (const size_t slot : own_held_outputs()) {
      give_away(slot);
    }
  }
}

void DeviceLaunch::give_away(size_t slot) {
  const at::Tensor tensor = slots_.at(slot);
  auto fresh = empty_like_storage_of(tensor);
  fresh.copy_(whole_storage_of(tensor), /*non_blocking=*/true);
  // Found before the pointers change: tensors that share a storage are known by it.
  std::vector<at::Tensor*> sharing;
  for (auto& other : slots_) {
    if (share_storage(other, tensor)) {
      sharing.push_back(&other);
    }
  }
  const c10::Storage& ours = fresh.storage();
  swap_memory(tensor.storage(), ours);
  for (auto* other : sharing) {
    move_to(*other, ours);
  }
}

}  // namespace airgraph
