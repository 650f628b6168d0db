// SPDX-License-Identifier: Apache-2.0
#include "simdevice/engine/graph.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <limits>
#include <thread>

#include "simdevice/engine/lane_threads.h"

namespace simdevice {

const char* name_of(NodeKind kind) noexcept {
  switch (kind) {
    case NodeKind::kernel:
      return "kernel";
    case NodeKind::memory_copy:
      return "memory copy";
    case NodeKind::host_function:
      return "host function";
    case NodeKind::event_record:
      return "event record";
    case NodeKind::event_wait:
      return "event wait";
    case NodeKind::event_reset:
      return "event reset";
    case NodeKind::value_write:
      return "value write";
    case NodeKind::value_wait:
      return "value wait";
  }
  return "unknown";
}

// One run of the graph.
struct Graph::Replay {
  Replay(std::size_t node_count, const std::function<bool()>& told_to_give_up)
      : give_up(told_to_give_up), done(node_count) {}

  const std::function<bool()>& give_up;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<bool> done;  // only of nodes that another lane waits for
  std::size_t lanes_running = 0;
  FailurePtr failure;
  std::atomic<bool> failed{false};  // what has not started yet is skipped

  bool abandoned() const noexcept { return failed.load(std::memory_order_acquire) || give_up(); }

  void fail(FailurePtr reason) {
    std::lock_guard lock(mutex);
    if (!failure) failure = std::move(reason);
    failed.store(true, std::memory_order_release);
  }
};

std::uint32_t Graph::add_lane(std::int32_t stream_id) {
  lanes_.push_back({stream_id, {}});
  return static_cast<std::uint32_t>(lanes_.size() - 1);
}

std::uint32_t Graph::add_node(Node node) {
  const auto number = static_cast<std::uint32_t>(nodes_.size());
  auto& lane = lanes_.at(node.lane);
  position_in_lane_.push_back(static_cast<std::uint32_t>(lane.nodes.size()));
  lane.nodes.push_back(number);
  waited_for_.push_back(false);
  for (const auto earlier : node.waits_for) waited_for_.at(earlier) = true;
  if (node.group >= 0) groups_.at(static_cast<std::size_t>(node.group))->nodes.push_back(number);
  nodes_.push_back(std::move(node));
  return number;
}

std::int32_t Graph::add_group() {
  groups_.push_back(std::make_shared<TaskGroup>());
  return static_cast<std::int32_t>(groups_.size() - 1);
}

std::optional<std::uint32_t> Graph::last_work_in_lane(std::uint32_t lane) const {
  const auto& nodes = lanes_.at(lane).nodes;
  const auto last = std::find_if(nodes.rbegin(), nodes.rend(),
                                 [&](auto number) { return nodes_[number].kind != NodeKind::event_record; });
  if (last == nodes.rend()) return std::nullopt;
  return *last;
}

std::vector<bool> Graph::ancestors_of(std::uint32_t node) const {
  std::vector<bool> reached(nodes_.size(), false);
  std::vector<std::uint32_t> open{node};
  reached.at(node) = true;
  const auto visit = [&](std::uint32_t earlier) {
    if (reached[earlier]) return;
    reached[earlier] = true;
    open.push_back(earlier);
  };
  while (!open.empty()) {
    const auto current = open.back();
    open.pop_back();
    for (const auto earlier : nodes_[current].waits_for) visit(earlier);
    if (const auto position = position_in_lane_[current]; position > 0) {
      visit(lanes_[nodes_[current].lane].nodes[position - 1]);
    }
  }
  return reached;
}

void Graph::update(const TaskGroup& group, std::vector<std::function<void()>> work) {
  std::lock_guard lock(update_mutex_);
  for (std::size_t i = 0; i < group.nodes.size(); ++i) {
    nodes_.at(group.nodes[i]).work = std::make_shared<std::function<void()>>(std::move(work.at(i)));
  }
}

std::shared_ptr<std::function<void()>> Graph::work_of(std::uint32_t node) const {
  if (nodes_[node].group < 0) return nodes_[node].work;
  std::lock_guard lock(update_mutex_);
  return nodes_[node].work;
}

void Graph::run_node(std::uint32_t number, Replay& replay) const {
  const auto& node = nodes_[number];
  if (replay.abandoned()) return;
  try {
    if (node.value_wait.cell != nullptr) {
      const auto& wait = node.value_wait;
      wait_for_value(wait.cell, wait.test, wait.expected, [&] { return replay.abandoned(); });
    }
    if (const auto work = work_of(number)) (*work)();
  } catch (const DeviceFault& fault) {
    replay.fail(fault.failure());
  } catch (const std::exception& error) {
    replay.fail(make_failure(Fault::kernel_failed, "kernel '" + node.name + "' failed in graph " +
                                                                std::to_string(id_) + " (node " +
                                                                std::to_string(number) + "): " + error.what()));
  }
}

void Graph::run_lane(std::uint32_t lane, Replay& replay) const {
  for (const auto number : lanes_[lane].nodes) {
    if (const auto& earlier = nodes_[number].waits_for; !earlier.empty()) {
      // Ends: whoever is waited for comes earlier in the capture, and lanes that gave up still say that they passed.
      std::unique_lock lock(replay.mutex);
      replay.changed.wait(lock, [&] { return std::ranges::all_of(earlier, [&](auto e) { return replay.done[e]; }); });
    }
    run_node(number, replay);
    if (waited_for_[number]) {
      std::lock_guard lock(replay.mutex);
      replay.done[number] = true;
      replay.changed.notify_all();
    }
  }
}

std::vector<Graph::Urgency> Graph::urgencies(const Schedule& schedule) const {
  if (schedule.order == Order::seeded) {
    const auto seed = mix(schedule.seed, runs_);
    std::vector<Urgency> result;
    for (std::size_t i = 0; i < nodes_.size(); ++i) result.push_back({mix(seed, i)});
    return result;
  }
  // The set of the kernels that depend on a node, itself included, read as a number whose bits are the nodes, the latest first. Of
  // two nodes that one is more urgent on which the latest kernel depends that does not depend on both: so a late kernel
  // overtakes an early one also when it first needs others, and although all streams join in the end.
  constexpr std::size_t bits = 64;
  const auto words = nodes_.size() / bits + 1;
  std::vector<Urgency> result(nodes_.size(), Urgency(words, 0));
  for (std::size_t i = nodes_.size(); i-- > 0;) {
    if (nodes_[i].work) result[i][words - 1 - i / bits] |= std::uint64_t{1} << (i % bits);
    const auto pass_on = [&](std::uint32_t earlier) {
      for (std::size_t word = 0; word < words; ++word) result[earlier][word] |= result[i][word];
    };
    for (const auto earlier : nodes_[i].waits_for) pass_on(earlier);
    if (const auto position = position_in_lane_[i]; position > 0) pass_on(lanes_[nodes_[i].lane].nodes[position - 1]);
  }
  return result;
}

void Graph::run_in_order(const Schedule& schedule, Replay& replay) {
  const auto urgency = urgencies(schedule);
  std::vector<std::uint32_t> next(lanes_.size(), 0);
  std::vector<bool> done(nodes_.size(), false);
  const auto can_run = [&](std::uint32_t number) {
    const auto& node = nodes_[number];
    if (!std::ranges::all_of(node.waits_for, [&](auto earlier) { return done[earlier]; })) return false;
    const auto& wait = node.value_wait;
    return wait.cell == nullptr || passes(read_value(wait.cell), wait.test, wait.expected);
  };
  for (std::size_t left = nodes_.size(); left > 0;) {
    constexpr auto none = std::numeric_limits<std::uint32_t>::max();
    std::uint32_t chosen = none;
    for (std::size_t lane = 0; lane < lanes_.size(); ++lane) {
      if (next[lane] == lanes_[lane].nodes.size()) continue;
      const auto candidate = lanes_[lane].nodes[next[lane]];
      if (chosen != none && urgency[candidate] < urgency[chosen]) continue;
      if (can_run(candidate)) chosen = candidate;
    }
    if (chosen == none) {
      // All that is left waits for a number that somebody outside this graph will write.
      if (replay.abandoned()) return;
      std::this_thread::sleep_for(std::chrono::microseconds(200));
      continue;
    }
    run_node(chosen, replay);
    done[chosen] = true;
    ++next[nodes_[chosen].lane];
    --left;
  }
}

FailurePtr Graph::run(const Schedule& schedule, const std::function<bool()>& give_up, LaneThreads& threads) {
  std::lock_guard one_at_a_time(run_mutex_);
  ++runs_;
  Replay replay(nodes_.size(), give_up);
  if (schedule.order != Order::parallel) {
    run_in_order(schedule, replay);
    return replay.failure;
  }
  if (lanes_.empty()) return nullptr;
  replay.lanes_running = lanes_.size() - 1;
  for (std::uint32_t lane = 1; lane < lanes_.size(); ++lane) {
    threads.start([this, lane, &replay] {
      run_lane(lane, replay);
      std::lock_guard lock(replay.mutex);
      --replay.lanes_running;
      replay.changed.notify_all();
    });
  }
  run_lane(0, replay);
  std::unique_lock lock(replay.mutex);
  replay.changed.wait(lock, [&] { return replay.lanes_running == 0; });
  return replay.failure;
}

}  // namespace simdevice
