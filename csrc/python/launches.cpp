#include "launches.h"

#include <torch/csrc/autograd/python_variable.h>

#include <exception>
#include <utility>

#include "held_replay_lock.h"
#include "quick_call.h"
#include "without_gil.h"

namespace airgraph {

namespace py = pybind11;

Arguments arguments(py::handle args) {
  Arguments found;
  const auto count = PySequence_Fast_GET_SIZE(args.ptr());
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* given = PySequence_Fast_GET_ITEM(args.ptr(), i);
    found.add(THPVariable_Check(given) ? &THPVariable_Unpack(given) : nullptr);
  }
  return found;
}

py::object to_python(const Problem& problem) {
  const auto kind = [&problem] {
    switch (problem.kind) {
      case Problem::Kind::moved:
        return "MOVED";
      case Problem::Kind::mismatched:
        return "MISMATCHED";
      case Problem::Kind::foreign:
        return "FOREIGN";
      case Problem::Kind::overlapping:
        return "OVERLAPPING";
      case Problem::Kind::lost:
        return "LOST";
      case Problem::Kind::settings:
        return "SETTINGS";
      case Problem::Kind::outdated:
        return "OUTDATED";
      case Problem::Kind::capturing:
        return "CAPTURING";
    }
    return "";
  }();
  const auto module = py::module_::import("airgraph.runtime.problem");
  return module.attr("InputProblem")(module.attr("ProblemKind").attr(kind), problem.index);
}

py::object to_python(Outcome outcome) {
  if (const auto* problem = std::get_if<Problem>(&outcome)) {
    return to_python(*problem);
  }
  auto& outputs = std::get<std::vector<at::Tensor>>(outcome);
  py::list made(outputs.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    // Moved: a reference that is given up costs more than it looks, since torch then asks who else holds the tensor.
    PyObject* const wrapped = THPVariable_Wrap(std::move(outputs[i]));
    if (wrapped == nullptr) {
      throw py::error_already_set();
    }
    PyList_SET_ITEM(made.ptr(), static_cast<Py_ssize_t>(i), wrapped);
  }
  return made;
}

BoundLaunch::BoundLaunch(py::object call, const std::string& device, LiveOutputs policy,
                         std::shared_ptr<DeviceNeighbours> neighbours, std::shared_ptr<ReplayLock> replay_lock,
                         std::string called)
    : DeviceLaunch(c10::Device(device), policy, std::move(neighbours), std::move(replay_lock)),
      replay(std::move(call)) {
  name = std::move(called);
}

BoundLaunch::~BoundLaunch() {
  try {
    // Before the graph goes, which `replay` may be the last to hold, and its memory with it.
    close();
  } catch (const std::exception&) {
    // The device is gone, as at the end of the process.
  }
}

namespace {

Comparison compare(const Look& look, const Inputs& inputs, const Arguments& given) {
  return look ? look(inputs, given) : Comparison{true, nullptr};
}

}  // namespace

Outcome run(Launch& launch, py::handle args, bool is_locked, const Look& look) {
  const Arguments given = arguments(args);
  std::optional<HeldReplayLock> held;
  if (!is_locked) {
    held.emplace(launch.replay_lock, launch.name);
  }
  const auto [holds, compared] = compare(look, launch.inputs, given);
  if (!holds) {
    return Problem{Problem::Kind::mismatched};
  }
  std::optional<WithoutGil> released;
  if (!launch.is_quick()) {
    released.emplace();
  }
  return launch.call(given, compared.get());
}

Outcome run(BoundLaunch& launch, py::handle args, bool is_locked, const Look& look) {
  const Arguments given = arguments(args);
  std::optional<HeldReplayLock> held;
  if (!is_locked) {
    held.emplace(launch.replay_lock, launch.name);
  }
  const auto [holds, compared] = compare(look, launch.inputs, given);
  if (!holds) {
    return Problem{Problem::Kind::mismatched};
  }
  return launch.call(given, [&launch] { launch.replay(); }, compared.get());
}

std::optional<Problem> run(HandGraph& graph) {
  const HeldReplayLock held(graph.replay_lock, "replay of a CPUGraph");
  std::optional<WithoutGil> released;
  if (!graph.is_quick()) {
    released.emplace();
  }
  return graph.replay();
}

}  // namespace airgraph
