#include "row_program.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <sstream>
#include <utility>

namespace airgraph::own {
namespace {

struct Name {
  const char* text;
  RowOp op;
  size_t values;  // that it takes
};

constexpr Name kNames[] = {
    {"add", RowOp::add, 2},      {"sub", RowOp::sub, 2},   {"mul", RowOp::mul, 2},      {"div", RowOp::div, 2},
    {"neg", RowOp::neg, 1},      {"silu", RowOp::silu, 1}, {"rsqrt", RowOp::rsqrt, 1},  {"square", RowOp::square, 1},
    {"relu", RowOp::relu, 1},    {"mean", RowOp::mean, 1}, {"float32", RowOp::copy, 1}, {"bfloat16", RowOp::copy, 1},
    {"float16", RowOp::copy, 1},
};

const Name* name_of(const std::string& text) {
  const auto* found =
      std::find_if(std::begin(kNames), std::end(kNames), [&](const Name& each) { return text == each.text; });
  return found == std::end(kNames) ? nullptr : found;
}

Element cast_to(const std::string& text) {
  return text == "float32" ? Element::f32 : text == "bfloat16" ? Element::bf16 : Element::f16;
}

template <class Number>
std::optional<Number> number_of(const char* begin, const char* end) {
  Number number{};
  const auto [stop, error] = std::from_chars(begin, end, number);
  return error == std::errc{} && stop == end ? std::optional(number) : std::nullopt;
}

// One instruction and the value that it makes; nullopt where it is none.
std::optional<RowInstruction> parse(const std::string& text, const std::vector<RowValue>& values, RowValue& made) {
  std::istringstream words(text);
  std::string name;
  words >> name;
  RowInstruction found;
  for (std::string word; words >> word;) {
    if (word.starts_with('#')) {
      const auto number = number_of<double>(word.data() + 1, word.data() + word.size());
      if (!number || found.number ||
          (std::isfinite(*number) && std::abs(*number) > std::numeric_limits<float>::max())) {
        return std::nullopt;
      }
      found.number = static_cast<float>(*number);
      continue;
    }
    const auto value = number_of<int64_t>(word.data(), word.data() + word.size());
    // A number comes last.
    if (!value || *value < 0 || *value >= static_cast<int64_t>(values.size()) || found.number) {
      return std::nullopt;
    }
    found.from.push_back(*value);
  }
  if (found.from.empty()) {
    return std::nullopt;
  }
  made = values[found.from.front()];
  if (name == "cat") {
    found.step = RowStep::cat;
    made.count = 0;
    for (const int64_t each : found.from) {
      made.count += values[each].count;
    }
    const auto is_alike = [&](int64_t each) { return values[each].element == made.element; };
    return !found.number && std::all_of(found.from.begin(), found.from.end(), is_alike) ? std::optional(found)
                                                                                        : std::nullopt;
  }
  const auto* row = name_of(name);
  if (row == nullptr || found.from.size() + (found.number ? 1 : 0) != row->values) {
    return std::nullopt;
  }
  found.op = row->op;
  if (found.op == RowOp::copy) {
    made.element = cast_to(name);
  } else if (found.op == RowOp::mean) {
    made.count = 1;
  } else if (found.from.size() == 2) {
    const auto& second = values[found.from[1]];
    if (second.element != made.element || (second.count != made.count && second.count != 1 && made.count != 1)) {
      return std::nullopt;
    }
    made.count = std::max(made.count, second.count);
  }
  return found;
}

}  // namespace

std::optional<RowProgram> parse_row_program(const std::string& text, std::vector<RowValue> operands) {
  RowProgram program;
  program.values = std::move(operands);
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ';');) {
    RowValue made{};
    auto found = parse(part, program.values, made);
    if (!found) {
      return std::nullopt;
    }
    program.is_elementwise = program.is_elementwise && found->step == RowStep::op && found->op != RowOp::mean;
    program.instructions.push_back(std::move(*found));
    program.values.push_back(made);
  }
  return program.instructions.empty() ? std::nullopt : std::optional(std::move(program));
}

}  // namespace airgraph::own
