// SPDX-License-Identifier: Apache-2.0
// A recorded graph as text.
#pragma once

#include <string>

#include "engine/graph.h"

namespace simcann {

// {"id", "streams": [{"id", "nodes": [...]}], "nodes": [{"id", "kind", "name", "stream", "waits_for", "group"}]}.
// `waits_for` lists nodes of other streams; "group" is there for nodes of a task group.
std::string graph_as_json(const Graph& graph);

}  // namespace simcann
