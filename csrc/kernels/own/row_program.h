// A few row functions in a row as one step: what `airgraph::row_program` says, and where its values lie.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "row_ops.h"

namespace airgraph::own {

// A value of a program, for each row: operands first, then the result of each instruction.
struct RowValue {
  Element element;
  int64_t count;  // numbers in a row; 1 stands for as many as are wanted
};

enum class RowStep { op, cat };

struct RowInstruction {
  RowStep step = RowStep::op;
  RowOp op = RowOp::copy;
  std::vector<int64_t> from;    // values
  std::optional<float> number;  // in the place of a second value
};

struct RowProgram {
  std::vector<RowInstruction> instructions;
  std::vector<RowValue> values;
  bool is_elementwise = true;  // no number of a row depends on another
};

// Nullopt where the text is not of this form or does not fit the operands: see `program/row_programs.py`.
std::optional<RowProgram> parse_row_program(const std::string& text, std::vector<RowValue> operands);

}  // namespace airgraph::own
