// SPDX-License-Identifier: Apache-2.0
// Events that join a graph and work outside of it: each launch records them anew, and waits for what is recorded then.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "simdevice/device.h"

namespace simcuda {

// A node of a graph that records such an event, or waits for one.
class ExternalEvent {
 public:
  ExternalEvent(simdevice::EventPtr event, bool waits) : event_(std::move(event)), waits_(waits) {}

  // When the graph is launched: what its node will finish, or wait for.
  void launched() {
    auto point = waits_ ? event_->last().point : std::make_shared<simdevice::Completion>();
    if (!waits_) event_->set({.point = point, .capture = {}, .node = 0});
    std::lock_guard lock(mutex_);
    points_.push_back(std::move(point));
  }

  // When the node runs. Launches of one graph run in order.
  void run() {
    simdevice::CompletionPtr point;
    {
      std::lock_guard lock(mutex_);
      if (points_.empty()) return;
      point = std::move(points_.front());
      points_.pop_front();
    }
    if (!point) return;  // never recorded: nothing to wait for
    if (waits_) {
      point->wait();
    } else {
      point->finish(nullptr);
    }
  }

 private:
  const simdevice::EventPtr event_;
  const bool waits_;
  std::mutex mutex_;
  std::deque<simdevice::CompletionPtr> points_;
};

using ExternalEvents = std::vector<std::shared_ptr<ExternalEvent>>;

}  // namespace simcuda
