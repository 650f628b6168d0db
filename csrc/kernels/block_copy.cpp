// Operators that only move whole blocks of memory: copies, cat, index_copy. The blocks are worked out at capture, so a
// replay is a loop of memcpy. Addresses are read at each replay, since an output's storage may be renewed.
#include <ATen/CPUFunctions.h>

#include <algorithm>
#include <cstring>

#include "../internals/kernels.h"
#include "table.h"
#include "typed.h"

namespace airgraph {
namespace {

using namespace typed;

// Past this many blocks ATen's own kernels, which use threads, are the better choice.
constexpr int64_t kMostBlocks = 1024;

char* bytes(const at::Tensor& tensor) { return static_cast<char*>(tensor.mutable_data_ptr()); }

struct Block {
  size_t source;  // index into the sources
  int64_t from;   // bytes
  int64_t to;     // bytes
  size_t nbytes;
};

// How many trailing dimensions, from `ndim` down, are one contiguous run in both tensors, as the first such dimension.
int64_t run_begin(const at::Tensor& a, const at::Tensor& b, int64_t floor) {
  int64_t expected = 1;
  int64_t dim = a.dim();
  while (dim > floor) {
    const bool unit = a.size(dim - 1) == 1;
    if (!unit && (a.stride(dim - 1) != expected || b.stride(dim - 1) != expected)) {
      break;
    }
    expected *= a.size(dim - 1);
    --dim;
  }
  return dim;
}

// Appends the blocks that copy `from` to `to` (same shape); false if there would be too many.
bool add_blocks(const at::Tensor& from, const at::Tensor& to, size_t source, int64_t to_offset,
                std::vector<Block>& blocks) {
  if (from.numel() == 0) {
    return true;
  }
  const auto itemsize = static_cast<int64_t>(from.itemsize());
  const int64_t outer = run_begin(from, to, 0);
  int64_t count = 1;
  int64_t run = 1;
  for (int64_t dim = 0; dim < from.dim(); ++dim) {
    (dim < outer ? count : run) *= from.size(dim);
  }
  if (static_cast<int64_t>(blocks.size()) + count > kMostBlocks) {
    return false;
  }
  std::vector<int64_t> at(static_cast<size_t>(outer), 0);
  for (int64_t i = 0; i < count; ++i) {
    int64_t source_offset = 0;
    int64_t target_offset = to_offset;
    for (int64_t dim = 0; dim < outer; ++dim) {
      source_offset += at[dim] * from.stride(dim);
      target_offset += at[dim] * to.stride(dim);
    }
    blocks.push_back({source, source_offset * itemsize, target_offset * itemsize, static_cast<size_t>(run * itemsize)});
    for (int64_t dim = outer - 1; dim >= 0 && ++at[dim] == from.size(dim); --dim) {
      at[dim] = 0;
    }
  }
  return true;
}

void move_blocks(const std::vector<Block>& blocks, const char* from, char* to) {
  for (const auto& block : blocks) {
    std::memcpy(to + block.to, from + block.from, block.nbytes);
  }
}

struct CopyCtx final : Step {
  at::Tensor out;
  at::Tensor self;
  std::vector<Block> blocks;
};

void run_copy(Step* step) {
  auto& ctx = *static_cast<CopyCtx*>(step);
  native::copy_(ctx.out, ctx.self, /*non_blocking=*/false);
}

void run_block_copy(Step* step) {
  auto& ctx = *static_cast<CopyCtx*>(step);
  move_blocks(ctx.blocks, static_cast<const char*>(ctx.self.const_data_ptr()), bytes(ctx.out));
}

// Whether moving blocks beats ATen's copy: not for single elements, which it moves in vectors, nor for so much that it
// uses threads.
bool worth_moving(const at::Tensor& out, const std::vector<Block>& blocks) {
  constexpr size_t kLeastRun = 32;
  constexpr size_t kMostBytes = size_t{256} * 1024;
  return out.nbytes() <= kMostBytes && (blocks.size() <= 4 || blocks[0].nbytes >= kLeastRun);
}

PreparedStep copy_of(const at::Tensor& out, const at::Tensor& self) {
  auto ctx = std::make_unique<CopyCtx>();
  ctx->out = out;
  ctx->self = self;
  const bool plain = self.sizes() == out.sizes() && self.scalar_type() == out.scalar_type() && !self.is_conj() &&
                     !self.is_neg() && !self.is_alias_of(out);
  if (plain && add_blocks(self, out, 0, 0, ctx->blocks) && worth_moving(out, ctx->blocks)) {
    return {&run_block_copy, std::move(ctx), Tier::prepared};
  }
  return {&run_copy, std::move(ctx)};
}

// clone(self, memory_format), _to_copy(self, dtype, ...): the slot already has dtype and strides.
std::optional<PreparedStep> make_copy(const torch::jit::Stack& args, c10::ArrayRef<at::Tensor> outs) {
  if (args[0].toTensor().sizes() != outs[0].sizes()) {
    return std::nullopt;
  }
  return copy_of(outs[0], args[0].toTensor());
}

// copy_(self, src, non_blocking), where src may be broadcast.
std::optional<PreparedStep> make_copy_into(const torch::jit::Stack& args, c10::ArrayRef<at::Tensor> outs) {
  if (!outs.empty()) {
    return std::nullopt;
  }
  return copy_of(args[0].toTensor(), args[1].toTensor());
}

struct CatCtx final : Step {
  at::Tensor out;
  std::vector<at::Tensor> sources;
  std::vector<Block> blocks;
};

void run_cat(Step* step) {
  auto& ctx = *static_cast<CatCtx*>(step);
  char* out = bytes(ctx.out);
  for (const auto& block : ctx.blocks) {
    std::memcpy(out + block.to, static_cast<const char*>(ctx.sources[block.source].const_data_ptr()) + block.from,
                block.nbytes);
  }
}

// cat(tensors, dim)
std::optional<PreparedStep> make_cat(const torch::jit::Stack& args, c10::ArrayRef<at::Tensor> outs) {
  const auto tensors = args[0].toTensorVector();
  const auto& out = outs[0];
  const int64_t dim = args[1].toInt() + (args[1].toInt() < 0 ? out.dim() : 0);
  auto ctx = std::make_unique<CatCtx>();
  ctx->out = out;
  int64_t position = 0;
  for (const auto& tensor : tensors) {
    // A one-dimensional empty tensor may stand among others, by an old rule of cat.
    if (tensor.dim() != out.dim() || tensor.scalar_type() != out.scalar_type() || tensor.is_conj() || tensor.is_neg()) {
      return Call<static_cast<at::Tensor& (*)(at::Tensor&, Tensors, I)>(&at::cpu::cat_out)>::make(args, outs);
    }
    const auto target = out.narrow(dim, position, tensor.size(dim));
    if (!add_blocks(tensor, target, ctx->sources.size(), position * out.stride(dim), ctx->blocks)) {
      return Call<static_cast<at::Tensor& (*)(at::Tensor&, Tensors, I)>(&at::cpu::cat_out)>::make(args, outs);
    }
    ctx->sources.push_back(tensor);
    position += tensor.size(dim);
  }
  return PreparedStep{&run_cat, std::move(ctx), Tier::prepared};
}

struct IndexCopyCtx final : Step {
  at::Tensor self, index, source;
  std::vector<Block> blocks;  // of the source at position 0; `to` for index 0
  int64_t limit = 0;
  int64_t source_stride = 0;  // bytes
  int64_t self_stride = 0;    // bytes
};

void run_index_copy(Step* step) {
  auto& ctx = *static_cast<IndexCopyCtx*>(step);
  char* self = bytes(ctx.self);
  const char* source = static_cast<const char*>(ctx.source.const_data_ptr());
  const auto* index = ctx.index.const_data_ptr<int64_t>();
  const int64_t stride = ctx.index.dim() == 0 ? 0 : ctx.index.stride(0);
  for (int64_t i = 0; i < ctx.index.numel(); ++i) {
    const int64_t at = index[i * stride];
    TORCH_CHECK_INDEX(at >= 0 && at < ctx.limit, "index_copy_(): index ", at,
                      " is out of bounds for dimension with size ", ctx.limit);
    for (const auto& block : ctx.blocks) {
      std::memcpy(self + at * ctx.self_stride + block.to, source + i * ctx.source_stride + block.from, block.nbytes);
    }
  }
}

// index_copy_(self, dim, index, source)
std::optional<PreparedStep> make_index_copy(const torch::jit::Stack& args, c10::ArrayRef<at::Tensor> outs) {
  auto ctx = std::make_unique<IndexCopyCtx>();
  ctx->self = args[0].toTensor();
  ctx->index = args[2].toTensor();
  ctx->source = args[3].toTensor();
  const auto& self = ctx->self;
  const auto& source = ctx->source;
  const bool plain = outs.empty() && self.dim() > 0 && source.dim() == self.dim() &&
                     source.scalar_type() == self.scalar_type() && ctx->index.scalar_type() == at::kLong &&
                     source.numel() > 0 && ctx->index.dim() <= 1 && !self.is_alias_of(source);
  if (!plain) {
    return std::nullopt;
  }
  const int64_t dim = args[1].toInt() + (args[1].toInt() < 0 ? self.dim() : 0);
  const auto row = source.narrow(dim, 0, 1);
  const auto target = self.narrow(dim, 0, 1);
  if (source.size(dim) != ctx->index.numel() || row.sizes() != target.sizes() ||
      !add_blocks(row, target, 0, 0, ctx->blocks) ||
      static_cast<int64_t>(ctx->blocks.size()) * ctx->index.numel() > kMostBlocks) {
    return std::nullopt;
  }
  const auto itemsize = static_cast<int64_t>(self.itemsize());
  ctx->limit = self.size(dim);
  ctx->self_stride = self.stride(dim) * itemsize;
  ctx->source_stride = source.stride(dim) * itemsize;
  return PreparedStep{&run_index_copy, std::move(ctx), Tier::prepared};
}

const KernelRow block_copy_rows[] = {
    {"aten::clone", "", &make_copy}, {"aten::_to_copy", "", &make_copy},          {"aten::copy_", "", &make_copy_into},
    {"aten::cat", "", &make_cat},    {"aten::index_copy_", "", &make_index_copy},
};

}  // namespace

c10::ArrayRef<KernelRow> block_copy_kernels() { return block_copy_rows; }

}  // namespace airgraph
