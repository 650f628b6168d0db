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

const char* task_type(NodeKind kind) {
  switch (kind) {
    case NodeKind::kernel:
      return "KERNEL_AICORE";
    case NodeKind::memory_copy:
      return "MEMCPY_ASYNC";
    case NodeKind::host_function:
      return "HOST_FUNC";
    case NodeKind::event_record:
      return "EVENT_RECORD";
    case NodeKind::event_wait:
      return "EVENT_WAIT";
    case NodeKind::event_reset:
      return "EVENT_RESET";
    case NodeKind::value_write:
      return "MEM_WRITE_VALUE";
    case NodeKind::value_wait:
      return "MEM_WAIT_VALUE";
  }
  return "UNKNOWN";
}

// The number that joins a record and its waits: the record's own, or the address of an external event or a value.
std::string joint(const Node& node, std::uint32_t number) {
  if (!node.name.empty()) return node.name;
  return std::to_string(node.waits_for.empty() ? number : node.waits_for.front());
}

std::string title(const Node& node, std::uint32_t number) {
  switch (node.kind) {
    case NodeKind::kernel:
    case NodeKind::memory_copy:
    case NodeKind::host_function:
      return node.name;
    default:
      return std::string(task_type(node.kind)) + '_' + joint(node, number);
  }
}

}  // namespace

std::string graph_as_json(const Graph& graph) {
  std::ostringstream text;
  text << "[";
  const char* separator = "\n";
  for (std::uint32_t number = 0; number < graph.nodes().size(); ++number) {
    const auto& node = graph.nodes()[number];
    const auto stream = graph.stream_of_lane(node.lane);
    text << separator << "{\"name\": " << quoted(title(node, number)) << ", \"ph\": \"X\", \"pid\": \"aclGraph "
         << graph.id() << "\", \"tid\": \"stream" << stream << "\", \"ts\": " << number << ", \"dur\": 1"
         << ", \"args\": {\"Model Id\": " << graph.id() << ", \"Stream Id\": " << stream << ", \"Task Id\": " << number
         << ", \"Task Type\": " << quoted(task_type(node.kind)) << ", \"Waits For\": " << list(node.waits_for);
    if (node.group >= 0) text << ", \"Task Group\": " << node.group;
    text << "}}";
    separator = ",\n";
  }
  text << "\n]\n";
  return text.str();
}

}  // namespace simcann
