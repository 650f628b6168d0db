// Runs row programs block by block, so that what lies between their instructions stays in a core's first cache.
#include <ATen/ExpandUtils.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "../../engine/parallel_loop.h"
#include "elements_of.h"
#include "overlaps.h"
#include "row_program_layout.h"
#include "table.h"

namespace airgraph {
namespace {

using own::RowPlace;
using own::RowProgramCall;

constexpr int64_t kBlockNbytes = 16 << 10;  // of scratch, where a row is not longer
constexpr int64_t kBlockCount = 2048;       // numbers of a long row, where they do not depend on each other
constexpr size_t kMostTensors = 16;
constexpr size_t kMostDims = 6;
// What a call does in a nanosecond, about, and what is worth another thread.
constexpr int64_t kNumbersPerNs = 8;
constexpr int64_t kPartNs = 10000;

// The dimensions of all tensors, the rows' own last.
struct Space {
  std::vector<int64_t> sizes;
  std::vector<std::vector<int64_t>> strides;  // of each tensor, in bytes
};

// A call as a replay reads it, in one line of a cache.
struct PackedPlace {
  int32_t offset, row_stride;
};

struct PackedCall {
  own::RowOpFn fn;
  PackedPlace out, a, b;
  int32_t count, step, out_step;
  float number;
  int8_t out_tensor, a_tensor, b_tensor;
  uint8_t nbytes;
};

struct ProgramTensor {
  at::Tensor tensor;
  own::RowStrides strides;
};

struct ProgramCtx final : Step {
  std::vector<PackedCall> calls;
  int64_t rows = 1, block_rows = 1, row_blocks = 1;
  int64_t count = 1, block_count = 1, count_blocks = 1;
  int64_t blocks = 1;
  int64_t scratch_nbytes = 0;
  size_t parts = 1, part_ns = 0;
  char* scratch = nullptr;  // of a replay: `scratch_nbytes` for each thread
  size_t dims = 0;          // outside of rows
  size_t tensor_count = 0;
  std::array<ProgramTensor, kMostTensors> tensors;
  std::array<int64_t, kMostDims> sizes{};
  std::array<std::array<int64_t, kMostDims>, kMostTensors> strides{};

  c10::ArrayRef<char> list() const override {
    return {reinterpret_cast<const char*>(calls.data()), calls.size() * sizeof(PackedCall)};
  }
};

using Pointers = std::array<char*, kMostTensors>;

void put_together(const PackedCall& call, char* out, const char* from, int64_t rows, int64_t count) {
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = 0; i < count; ++i) {
      std::memcpy(out + row * call.out.row_stride + i * call.out_step, from + row * call.a.row_stride + i * call.step,
                  call.nbytes);
    }
  }
}

// Where a block begins in each tensor, and the numbers of its rows.
int64_t find_block(const ProgramCtx& ctx, int64_t block, Pointers& begin, int64_t& rows) {
  const int64_t first_number = block % ctx.count_blocks * ctx.block_count;
  int64_t rest = block / ctx.count_blocks;
  const int64_t first_row = rest % ctx.row_blocks * ctx.block_rows;
  rest /= ctx.row_blocks;
  for (size_t i = 0; i < ctx.tensor_count; ++i) {
    const auto& strides = ctx.tensors[i].strides;
    begin[i] += first_row * strides.row + first_number * strides.step;
  }
  for (size_t dim = ctx.dims; dim-- > 0;) {
    for (size_t i = 0; i < ctx.tensor_count; ++i) {
      begin[i] += rest % ctx.sizes[dim] * ctx.strides[i][dim];
    }
    rest /= ctx.sizes[dim];
  }
  rows = std::min(ctx.block_rows, ctx.rows - first_row);
  return std::min(ctx.block_count, ctx.count - first_number);
}

void run_block(const ProgramCtx& ctx, int64_t block, Pointers begin, char* scratch) {
  int64_t rows = ctx.rows, numbers = ctx.count;
  if (ctx.blocks > 1) {
    numbers = find_block(ctx, block, begin, rows);
  }
  const auto at = [&](int8_t tensor, const PackedPlace& place) {
    return (tensor == RowPlace::kScratch ? scratch : begin[static_cast<size_t>(tensor)]) + place.offset;
  };
  const bool is_shorter = numbers < ctx.block_count;
  for (const auto& call : ctx.calls) {
    char* out = at(call.out_tensor, call.out);
    const char* a = at(call.a_tensor, call.a);
    const int64_t count = is_shorter && call.count == ctx.block_count ? numbers : call.count;
    if (call.fn == nullptr) {
      put_together(call, out, a, rows, count);
    } else {
      call.fn({out, a, at(call.b_tensor, call.b), rows, count, call.out.row_stride, call.a.row_stride,
               call.b.row_stride, call.number});
    }
  }
}

void run_part(const void* context, size_t part, size_t thread) noexcept {
  const auto& ctx = *static_cast<const ProgramCtx*>(context);
  Pointers data;
  data[0] = static_cast<char*>(ctx.tensors[0].tensor.mutable_data_ptr());
  for (size_t i = 1; i < ctx.tensor_count; ++i) {
    // Only read.
    data[i] = static_cast<char*>(const_cast<void*>(ctx.tensors[i].tensor.const_data_ptr()));
  }
  char* scratch = ctx.scratch + static_cast<int64_t>(thread) * ctx.scratch_nbytes;
  const auto until = [&](size_t parts) {
    return ctx.blocks * static_cast<int64_t>(parts) / static_cast<int64_t>(ctx.parts);
  };
  for (int64_t block = until(part); block < until(part + 1); ++block) {
    run_block(ctx, block, data, scratch);
  }
}

void run_program(Step* step) {
  auto& ctx = *static_cast<ProgramCtx*>(step);
  // Of the thread that replays, for all its programs: a part must not fail.
  thread_local std::vector<char> scratch;
  const size_t threads = ctx.parts > 1 ? ParallelLoop::threads_of_next() : 1;
  const size_t nbytes = static_cast<size_t>(ctx.scratch_nbytes) * threads;
  if (scratch.size() < nbytes) {
    scratch.resize(nbytes);
  }
  ctx.scratch = scratch.data();
  if (ctx.parts == 1) {
    run_part(&ctx, 0, 0);
  } else {
    ParallelLoop::run(ctx.parts, ctx.part_ns, &run_part, &ctx);
  }
}

// Nullopt where an operand does not fit the result.
std::optional<Space> space_of(const std::vector<at::Tensor>& tensors) {
  Space space;
  const auto& out = tensors[0];
  for (size_t i = 0; i < tensors.size(); ++i) {
    auto shape = out.sizes().vec();
    shape.back() = tensors[i].dim() == 0 ? 1 : tensors[i].size(-1);
    if (!at::is_expandable_to(tensors[i].sizes(), shape)) {
      return std::nullopt;
    }
    const auto expanded = tensors[i].expand(shape);
    const auto strides = expanded.strides();
    auto& found = space.strides.emplace_back();
    for (size_t dim = 0; dim < strides.size(); ++dim) {
      found.push_back(shape[dim] == 1 ? 0 : strides[dim] * static_cast<int64_t>(tensors[i].element_size()));
    }
  }
  space.sizes = out.sizes().vec();
  return space;
}

void erase_dim(Space& space, size_t dim) {
  space.sizes.erase(space.sizes.begin() + static_cast<int64_t>(dim));
  for (auto& strides : space.strides) {
    strides.erase(strides.begin() + static_cast<int64_t>(dim));
  }
}

// Dimensions outside of rows that all tensors can go along in one loop become one.
void join_dims(Space& space) {
  for (size_t dim = space.sizes.size() - 1; dim-- > 0;) {
    const size_t next = dim + 1;
    const bool is_last = next == space.sizes.size() - 1;
    const auto goes_on = [&](const std::vector<int64_t>& strides) {
      return strides[dim] == strides[next] * space.sizes[next];
    };
    if (space.sizes[dim] == 1) {
      erase_dim(space, dim);
    } else if (!is_last && std::all_of(space.strides.begin(), space.strides.end(), goes_on)) {
      space.sizes[next] *= space.sizes[dim];
      erase_dim(space, dim);
    }
  }
}

// Rows that follow one another in the result and all operands become one, where no number depends on another.
void join_rows(Space& space, std::vector<own::RowValue>& values, const std::vector<at::Tensor>& tensors) {
  while (space.sizes.size() > 1 && space.sizes.back() > 1) {
    const size_t dim = space.sizes.size() - 2;
    for (size_t i = 0; i < tensors.size(); ++i) {
      const auto& strides = space.strides[i];
      const bool is_one = i > 0 && values[i - 1].count == 1;
      if (strides[dim] != strides[dim + 1] * space.sizes.back() || (!is_one && strides[dim + 1] == 0)) {
        return;
      }
    }
    for (auto& value : values) {
      value.count *= value.count == 1 ? 1 : space.sizes[dim];
    }
    space.sizes.back() *= space.sizes[dim];
    erase_dim(space, dim);
  }
}

// Numbers that are added are rounded first, as eager does.
void round_numbers(own::RowProgram& program, size_t operands) {
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    auto& each = program.instructions[i];
    if (each.number && (each.op == own::RowOp::add || each.op == own::RowOp::sub)) {
      const auto element = program.values[operands + i].element;
      each.number = element == own::Element::bf16  ? static_cast<float>(at::BFloat16(*each.number))
                    : element == own::Element::f16 ? static_cast<float>(at::Half(*each.number))
                                                   : *each.number;
    }
  }
}

void divide(ProgramCtx& ctx, const own::RowLayout& layout) {
  const int64_t scratch_of_row = layout.scratch_nbytes;
  ctx.block_rows = std::clamp<int64_t>(kBlockNbytes / std::max<int64_t>(scratch_of_row, 1), 1, ctx.rows);
  ctx.row_blocks = (ctx.rows + ctx.block_rows - 1) / ctx.block_rows;
  ctx.count_blocks = (ctx.count + ctx.block_count - 1) / ctx.block_count;
  ctx.blocks = ctx.row_blocks * ctx.count_blocks;
  int64_t numbers = 0;
  for (const auto& call : layout.calls) {
    numbers += call.count * ctx.rows * ctx.count_blocks;
  }
  for (size_t dim = 0; dim < ctx.dims; ++dim) {
    ctx.blocks *= ctx.sizes[dim];
    numbers *= ctx.sizes[dim];
  }
  const int64_t most = std::min<int64_t>(ctx.blocks, ParallelLoop::kMostParts);
  const int64_t ns = numbers / kNumbersPerNs;
  ctx.parts = static_cast<size_t>(std::clamp<int64_t>(ns / kPartNs, 1, most));
  ctx.part_ns = static_cast<size_t>(ns) / ctx.parts;
  ctx.scratch_nbytes = scratch_of_row * ctx.block_rows;
}

// False where something is too far off.
bool pack(ProgramCtx& ctx, const std::vector<RowProgramCall>& calls) {
  bool fits = true;
  const auto small = [&](int64_t number) {
    fits = fits && number >= std::numeric_limits<int32_t>::min() && number <= std::numeric_limits<int32_t>::max();
    return static_cast<int32_t>(number);
  };
  const auto packed = [&](const RowPlace& place) {
    // A slot of scratch is all rows of a block.
    return PackedPlace{small(place.offset + place.slot * ctx.block_rows), small(place.row_stride)};
  };
  for (const auto& call : calls) {
    ctx.calls.push_back({call.fn, packed(call.out), packed(call.a), packed(call.b), small(call.count), small(call.step),
                         small(call.out_step), call.number, static_cast<int8_t>(call.out.tensor),
                         static_cast<int8_t>(call.a.tensor), static_cast<int8_t>(call.b.tensor),
                         static_cast<uint8_t>(call.nbytes)});
  }
  return fits;
}

// row_program(self, others, program)
std::optional<PreparedStep> make_program(const torch::jit::Stack& args, c10::ArrayRef<at::Tensor> outs) {
  if (outs.size() != 1) {
    return std::nullopt;
  }
  std::vector<at::Tensor> tensors{outs[0]};
  auto operands = args[1].toTensorVector();
  operands.insert(operands.begin(), args[0].toTensor());
  tensors.insert(tensors.end(), operands.begin(), operands.end());
  const auto& out = outs[0];
  if (tensors.size() > kMostTensors || !std::all_of(tensors.begin(), tensors.end(), own::holds_floats) ||
      out.dim() == 0 || out.dim() > static_cast<int64_t>(kMostDims)) {
    return std::nullopt;
  }
  if (out.numel() == 0) {
    return PreparedStep{[](Step*) {}, std::make_unique<Step>(), Tier::own};
  }
  const auto overlaps = [&](const at::Tensor& operand) { return own::overlaps_otherwise(out, operand); };
  if (std::any_of(operands.begin(), operands.end(), overlaps)) {
    return std::nullopt;
  }
  std::vector<own::RowValue> values;
  values.reserve(operands.size());
  for (const auto& operand : operands) {
    values.push_back({own::element_in(operand), operand.dim() == 0 ? 1 : operand.size(-1)});
  }
  const auto& text = args[2].toStringRef();
  auto space = space_of(tensors);
  auto program = own::parse_row_program(text, values);
  if (!program || !space || program->values.back().count != out.size(-1) ||
      program->values.back().element != own::element_of(out.scalar_type())) {
    return std::nullopt;
  }
  join_dims(*space);
  if (program->is_elementwise) {
    join_rows(*space, values, tensors);
    program = own::parse_row_program(text, values);
  }
  if (!program) {
    return std::nullopt;
  }
  round_numbers(*program, operands.size());
  auto ctx = std::make_unique<ProgramCtx>();
  std::vector<own::RowStrides> lying;
  const size_t last = space->sizes.size() - 1;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto& strides = space->strides[i];
    lying.push_back({last > 0 ? strides[last - 1] : 0, strides[last]});
    ctx->tensors[i] = {tensors[i], lying.back()};
    std::copy(strides.begin(), strides.begin() + static_cast<int64_t>(std::max<size_t>(last, 1)) - 1,
              ctx->strides[i].begin());
  }
  ctx->tensor_count = tensors.size();
  ctx->dims = std::max<size_t>(last, 1) - 1;
  std::copy(space->sizes.begin(), space->sizes.begin() + static_cast<int64_t>(ctx->dims), ctx->sizes.begin());
  ctx->rows = last > 0 ? space->sizes[last - 1] : 1;
  ctx->count = space->sizes.back();
  ctx->block_count = program->is_elementwise ? std::min(ctx->count, kBlockCount) : ctx->count;
  const auto is_out = [&](const at::Tensor& operand) { return operand.is_alias_of(out); };
  auto layout = own::lay_out(*program, lying, ctx->block_count, std::any_of(operands.begin(), operands.end(), is_out));
  if (!layout) {
    return std::nullopt;
  }
  divide(*ctx, *layout);
  if (!pack(*ctx, layout->calls)) {
    return std::nullopt;
  }
  const bool has_parts = ctx->parts > 1;
  return PreparedStep{&run_program, std::move(ctx), Tier::own, has_parts};
}

const KernelRow program_rows[] = {
    {"airgraph::row_program", "", &make_program},
};

}  // namespace

c10::ArrayRef<KernelRow> own_row_programs() { return program_rows; }

}  // namespace airgraph
