// SPDX-License-Identifier: Apache-2.0
// An instantiated graph (cudaGraphExec_t): it outlives the cudaGraph_t that it was made of.
#pragma once

#include "external_events.h"
#include "simdevice/device.h"

namespace simcuda {

struct Executable {
  simdevice::GraphPtr graph;
  ExternalEvents external_events;
};

inline simdevice::Handles<Executable>& executables() {
  static auto& all = *new simdevice::Handles<Executable>;
  return all;
}

}  // namespace simcuda
