// SPDX-License-Identifier: Apache-2.0
#include "abi/graph_json.h"

#include <cstdio>
#include <sstream>

namespace simcann {
namespace {

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      result += '\\';
      result += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof(escape), "\\u%04x", static_cast<unsigned>(c));
      result += escape;
    } else {
      result += c;
    }
  }
  return result + '"';
}

std::string list(const std::vector<std::uint32_t>& numbers) {
  std::string result = "[";
  for (const auto number : numbers) {
    if (result.size() > 1) result += ", ";
    result += std::to_string(number);
  }
  return result + ']';
}

}  // namespace

std::string graph_as_json(const Graph& graph) {
  std::vector<std::vector<std::uint32_t>> lanes(graph.lane_count());
  std::ostringstream nodes;
  const char* separator = "";
  for (std::uint32_t number = 0; number < graph.nodes().size(); ++number) {
    const auto& node = graph.nodes()[number];
    lanes[node.lane].push_back(number);
    nodes << separator << "    {\"id\": " << number << ", \"kind\": " << quoted(name_of(node.kind))
          << ", \"name\": " << quoted(node.name) << ", \"stream\": " << graph.stream_of_lane(node.lane)
          << ", \"waits_for\": " << list(node.waits_for);
    if (node.group >= 0) nodes << ", \"group\": " << node.group;
    nodes << '}';
    separator = ",\n";
  }
  std::ostringstream text;
  text << "{\n  \"id\": " << graph.id() << ",\n  \"streams\": [\n";
  separator = "";
  for (std::uint32_t lane = 0; lane < lanes.size(); ++lane) {
    text << separator << "    {\"id\": " << graph.stream_of_lane(lane) << ", \"nodes\": " << list(lanes[lane]) << '}';
    separator = ",\n";
  }
  text << "\n  ],\n  \"nodes\": [\n" << nodes.str() << "\n  ]\n}\n";
  return text.str();
}

}  // namespace simcann
