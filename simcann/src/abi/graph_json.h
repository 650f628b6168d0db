// SPDX-License-Identifier: Apache-2.0
// A recorded graph as text, in the form that trace viewers (and torch_npu's own tools) read.
#pragma once

#include <string>

#include "simdevice/engine/graph.h"

namespace simcann {

using namespace simdevice;

// A list of complete events ("ph": "X"), one for each node, `tid` naming its stream. "Task Id" is the node's number and
// "Waits For" lists nodes of other streams. Times stand for the order of recording, not for how long anything takes.
// The names of a record and of the wait that refers to it end in the same number.
std::string graph_as_json(const Graph& graph);

}  // namespace simcann
