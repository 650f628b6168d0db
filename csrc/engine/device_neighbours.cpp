#include "device_neighbours.h"

#include <c10/core/Event.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <utility>

#include "../internals/streams.h"
#include "device_launch.h"

namespace airgraph {
namespace {

// How many calls a stream or a thread is remembered for. One that has been silent for longer holds no outputs but such
// as have memory of their own.
constexpr uint64_t kRemembered = 64;

// Puts a place in front, with the number of this call, and forgets those that have been silent for long.
template <class Callers, class Place>
void remember(Callers& callers, const Place& place, uint64_t call) {
  if (callers.size() == 1 && callers[0].place == place) {
    callers[0] = {place, call, nullptr};
    return;
  }
  callers.erase(std::remove_if(callers.begin(), callers.end(),
                               [&](const auto& each) { return each.place == place || call - each.call > kRemembered; }),
                callers.end());
  callers.insert(callers.begin(), {place, call, nullptr});
}

}  // namespace

void put_in_order(const c10::Stream& first, const c10::Stream& second) {
  c10::Event done(first.device_type());
  done.record(first);
  done.block(second);
}

void DeviceNeighbours::follow_last_calls(c10::Device device) {
  ++calls_;
  if (has_streams(device)) {
    const c10::Stream current = current_stream(device);
    remember(streams_, current, calls_);
    for (size_t i = 1; i < streams_.size(); ++i) {
      const auto& [place, call, done] = streams_[i];
      if (done != nullptr) {
        done->block(current);
      } else {
        put_in_order(place, current);
      }
    }
  }
  remember(threads_, std::this_thread::get_id(), calls_);
}

void DeviceNeighbours::let_last_callers_follow() const {
  for (size_t i = 1; i < streams_.size(); ++i) {
    if (streams_[i].done == nullptr) {
      put_in_order(streams_[0].place, streams_[i].place);
    }
  }
}

void DeviceNeighbours::finish_call(c10::Device device) {
  if (has_streams(device) && is_external(streams_[0].place)) {
    streams_[0].done = std::make_shared<c10::Event>(device.type());
    streams_[0].done->record(streams_[0].place);
  }
}

bool DeviceNeighbours::meets_a_capture(c10::Device device) const {
  if (!has_streams(device) || (streams_.size() <= 1 && lenders_.empty() && !tells_captures_quickly(device))) {
    return false;
  }
  const c10::Stream current = current_stream(device);
  const auto is_captured = [&current](const c10::Stream& stream) { return stream != current && is_capturing(stream); };
  return (tells_captures_quickly(device) && is_capturing(current)) ||
         std::any_of(streams_.begin(), streams_.end(),
                     [&](const auto& each) { return each.done == nullptr && is_captured(each.place); }) ||
         std::any_of(lenders_.begin(), lenders_.end(),
                     [&](const DeviceLaunch* lender) { return lender->lends_to(is_captured); });
}

void DeviceNeighbours::give_away_held() {
  const auto held = last_ == nullptr ? std::vector<size_t>() : last_->own_held_outputs();
  if (held.empty() && lenders_.empty()) {
    return;
  }
  // Whoever drops a graph, or captures another, may do so in any thread and on any stream.
  std::optional<OnStream> block;
  if (!streams_.empty() && streams_[0].done == nullptr) {
    block.emplace(streams_[0].place);
  } else if (!streams_.empty()) {
    streams_[0].done->block(current_stream(streams_[0].place.device()));
  }
  for (const size_t slot : held) {
    last_->give_away(slot);
  }
  // A copy: each leaves the list when it is done.
  for (auto* lender : std::vector<DeviceLaunch*>(lenders_)) {
    lender->take_back_lent();
  }
  // Who holds them may read them on the streams that they were made on.
  let_last_callers_follow();
  if (block && block->before() != streams_[0].place) {
    try {
      put_in_order(streams_[0].place, block->before());
    } catch (const std::exception&) {
      // The device is gone, as at the end of the process.
    }
  }
}

DeviceLaunch* DeviceNeighbours::take_turn(DeviceLaunch* launch) { return std::exchange(last_, launch); }

void DeviceNeighbours::add_lender(DeviceLaunch* launch) {
  if (std::find(lenders_.begin(), lenders_.end(), launch) == lenders_.end()) {
    lenders_.push_back(launch);
  }
}

void DeviceNeighbours::forget(DeviceLaunch* launch) {
  remove_lender(launch);
  if (last_ == launch) {
    last_ = nullptr;
  }
}

void DeviceNeighbours::remove_lender(DeviceLaunch* launch) {
  lenders_.erase(std::remove(lenders_.begin(), lenders_.end(), launch), lenders_.end());
}

}  // namespace airgraph
