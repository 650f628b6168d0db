// Calls of launches from Python: lists of arguments in, lists of outputs or a problem out.
#pragma once

#include <torch/csrc/utils/pybind.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "../engine/arguments.h"
#include "../engine/device_launch.h"
#include "../engine/hand_graph.h"
#include "../engine/launch.h"
#include "kept_arguments.h"

namespace airgraph {

// What is a tensor is found out here, since for a subclass that is a question to Python. args: a list or a tuple.
Arguments arguments(pybind11::handle args);

pybind11::object to_python(const Problem& problem);

// A launch with the graph's own `replay`, called as Python calls it.
struct BoundLaunch : DeviceLaunch {
  BoundLaunch(pybind11::object call, const std::string& device, LiveOutputs policy,
              std::shared_ptr<DeviceNeighbours> neighbours, std::shared_ptr<ReplayLock> replay_lock,
              std::string called);
  BoundLaunch(const BoundLaunch&) = delete;
  BoundLaunch& operator=(const BoundLaunch&) = delete;
  ~BoundLaunch();

  pybind11::object replay;
};

// What a call has to compare of these arguments; asked under the replay lock, with the GIL. Empty: all.
using Look = std::function<Comparison(const Inputs& inputs, const Arguments& given)>;

// One call. is_locked: whether the caller holds the replay lock of the pool.
Outcome run(Launch& launch, pybind11::handle args, bool is_locked, const Look& look = {});
Outcome run(BoundLaunch& launch, pybind11::handle args, bool is_locked, const Look& look = {});

// A replay of a graph that was captured by hand; whether something kept it from running.
std::optional<Problem> run(HandGraph& graph);

pybind11::object to_python(Outcome outcome);

}  // namespace airgraph
