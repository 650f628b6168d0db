// Where the values of a row program lie while a block of rows is computed, and the calls that compute it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "row_program.h"

namespace airgraph::own {

// Where a value's rows lie, in bytes.
struct RowPlace {
  static constexpr int kScratch = -1;
  int tensor = kScratch;  // the result is 0, operand i is i + 1
  int64_t slot = 0;       // of scratch, for each row of a block, before all that is this value's
  int64_t offset = 0;
  int64_t row_stride = 0;
};

// Of a tensor: from one row to the next, and from one number of a row to the next.
struct RowStrides {
  int64_t row = 0;
  int64_t step = 0;
};

struct RowProgramCall {
  RowOpFn fn = nullptr;  // null: numbers that lie apart are put together
  RowPlace out, a, b;
  int64_t count = 0;
  float number = 0;
  int64_t step = 0, out_step = 0;  // of what is put together, and of where
  int64_t nbytes = 0;              // of a number
};

struct RowLayout {
  std::vector<RowProgramCall> calls;
  int64_t scratch_nbytes = 0;  // for each row
};

// tensors: of the result, then of the operands. count: numbers in the result's rows that are computed at once; other
// values of more than one number have as many, where the program is elementwise. is_operand: whether the result lies
// where an operand does. Nullopt where a function is missing.
std::optional<RowLayout> lay_out(const RowProgram& program, const std::vector<RowStrides>& tensors, int64_t count,
                                 bool is_operand);

}  // namespace airgraph::own
