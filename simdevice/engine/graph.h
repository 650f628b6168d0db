// SPDX-License-Identifier: Apache-2.0
// A recorded graph (aclmdlRI): what a capture noted, and running it.
//
// A lane is what one captured stream did, in order. A node comes after the one before it in its lane, and after the
// nodes it waits for in other lanes; nothing else orders two nodes. A replay gives every lane a thread (or picks a
// hostile order, see schedule.h), so a wait that the captured program forgot is missing here too.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "simdevice/engine/failure.h"
#include "simdevice/engine/schedule.h"
#include "simdevice/engine/value.h"

namespace simdevice {

enum class NodeKind {
  kernel,
  memory_copy,
  host_function,
  event_record,
  event_wait,
  event_reset,
  value_write,
  value_wait,
};

const char* name_of(NodeKind kind) noexcept;

// A wait for a number in memory. Kept apart from other work so that a single thread can run what is ready meanwhile.
struct ValueWait {
  std::uint64_t* cell = nullptr;
  ValueTest test = ValueTest::equal;
  std::uint64_t expected = 0;
};

struct Node {
  NodeKind kind;
  std::string name = {};  // of a kernel; an external event's or a value's address; empty for events of the capture
  std::uint32_t lane = 0;
  std::vector<std::uint32_t> waits_for = {};             // nodes of other lanes
  std::shared_ptr<std::function<void()>> work = nullptr;  // null: nothing to run
  ValueWait value_wait = {};                             // for value_wait and waits for external events
  std::int32_t group = -1;                               // the task group it can be updated with
};

class LaneThreads;

class Graph {
 public:
  struct TaskGroup {
    std::weak_ptr<Graph> graph;
    std::vector<std::uint32_t> nodes;
  };

  explicit Graph(std::uint32_t id) : id_(id) {}

  std::uint32_t id() const noexcept { return id_; }

  // While the capture is under way. Each returns the new number.
  std::uint32_t add_lane(std::int32_t stream_id);
  std::uint32_t add_node(Node node);
  std::int32_t add_group();

  const std::vector<Node>& nodes() const noexcept { return nodes_; }
  std::size_t lane_count() const noexcept { return lanes_.size(); }
  std::int32_t stream_of_lane(std::uint32_t lane) const { return lanes_.at(lane).stream_id; }
  // What the lane did last that was more than recording an event.
  std::optional<std::uint32_t> last_work_in_lane(std::uint32_t lane) const;
  // For every node, whether `node` comes after it (or is it).
  std::vector<bool> ancestors_of(std::uint32_t node) const;

  const std::vector<std::shared_ptr<TaskGroup>>& groups() const noexcept { return groups_; }
  std::shared_ptr<TaskGroup> group(std::int32_t number) const { return groups_.at(static_cast<std::size_t>(number)); }
  // New work for the nodes of a group, from now on; a replay that has not reached them yet sees it.
  void update(const TaskGroup& group, std::vector<std::function<void()>> work);

  // Run all nodes once; returns the first failure. Replays of one graph run one after the other. Once `give_up` says
  // so, nodes that have not started are skipped and waits for values end.
  FailurePtr run(const Schedule& schedule, const std::function<bool()>& give_up, LaneThreads& threads);

 private:
  struct Lane {
    std::int32_t stream_id;
    std::vector<std::uint32_t> nodes;
  };
  struct Replay;

  std::shared_ptr<std::function<void()>> work_of(std::uint32_t node) const;
  void run_node(std::uint32_t node, Replay& replay) const;
  void run_lane(std::uint32_t lane, Replay& replay) const;
  void run_in_order(const Schedule& schedule, Replay& replay);
  // Of a node; the greater runs first.
  using Urgency = std::vector<std::uint64_t>;
  std::vector<Urgency> urgencies(const Schedule& schedule) const;

  const std::uint32_t id_;
  std::vector<Node> nodes_;
  std::vector<Lane> lanes_;
  std::vector<std::uint32_t> position_in_lane_;
  std::vector<bool> waited_for_;  // by another lane
  std::vector<std::shared_ptr<TaskGroup>> groups_;
  mutable std::mutex update_mutex_;  // guards the `work` of nodes in groups
  std::mutex run_mutex_;
  std::uint64_t runs_ = 0;
};

}  // namespace simdevice
