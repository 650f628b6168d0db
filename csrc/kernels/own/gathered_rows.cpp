// Rows taken by their numbers: few of them, where ATen's own way takes longer to begin than to copy.
#include <cstring>

#include "table.h"

namespace airgraph {
namespace {

// From so many on, copying is what takes the time.
constexpr int64_t kMostGathered = int64_t{1} << 16;

struct GatherCtx final : Step {
  at::Tensor out, table, numbers;
  int64_t outer, size;             // how many tables, and the rows of each
  int64_t count;                   // that are taken of each
  int64_t row_nbytes, row_stride;  // bytes
  bool may_be_negative;            // and then count from the end
};

template <class Number>
void gather(const GatherCtx& ctx) {
  const auto* numbers = static_cast<const Number*>(ctx.numbers.const_data_ptr());
  const auto* table = static_cast<const char*>(ctx.table.const_data_ptr());
  auto* out = static_cast<char*>(ctx.out.mutable_data_ptr());
  for (int64_t outer = 0; outer < ctx.outer; ++outer) {
    for (int64_t i = 0; i < ctx.count; ++i) {
      int64_t number = numbers[i];
      const int64_t least = ctx.may_be_negative ? -ctx.size : 0;
      if (number < least || number >= ctx.size) {
        // As ATen's kernels say it.
        TORCH_CHECK_INDEX(!ctx.may_be_negative, "index ", number, " is out of bounds for dimension 0 with size ",
                          ctx.size);
        TORCH_CHECK_INDEX(false, "index out of range in self");
      }
      number += number < 0 ? ctx.size : 0;
      std::memcpy(out, table + (outer * ctx.size + number) * ctx.row_stride, static_cast<size_t>(ctx.row_nbytes));
      out += ctx.row_nbytes;
    }
  }
}

template <class Number>
void run_gather(Step* step) {
  gather<Number>(*static_cast<GatherCtx*>(step));
}

// Rows of `table` along `dim`, what lies in one being dense.
std::optional<PreparedStep> make_gather(const at::Tensor& out, at::Tensor table, at::Tensor numbers, int64_t dim,
                                        bool may_be_negative) {
  const bool is_matrix = dim == 0 && table.dim() == 2 && table.stride(1) == 1 && table.size(1) > 0;
  if (!out.is_contiguous() || !numbers.is_contiguous() || !(is_matrix || table.is_contiguous()) ||
      out.scalar_type() != table.scalar_type() || out.numel() == 0 || table.is_neg() || table.is_conj() ||
      out.numel() * static_cast<int64_t>(out.element_size()) > kMostGathered ||
      (numbers.scalar_type() != at::kLong && numbers.scalar_type() != at::kInt)) {
    return std::nullopt;
  }
  auto ctx = std::make_unique<GatherCtx>();
  ctx->outer = c10::multiply_integers(table.sizes().slice(0, static_cast<size_t>(dim)));
  ctx->size = table.size(dim);
  ctx->count = numbers.numel();
  const auto nbytes = static_cast<int64_t>(table.element_size());
  ctx->row_nbytes = c10::multiply_integers(table.sizes().slice(static_cast<size_t>(dim) + 1)) * nbytes;
  ctx->row_stride = is_matrix ? table.stride(0) * nbytes : ctx->row_nbytes;
  ctx->may_be_negative = may_be_negative;
  if (ctx->outer * ctx->count * ctx->row_nbytes != out.numel() * nbytes) {
    return std::nullopt;
  }
  const bool is_long = numbers.scalar_type() == at::kLong;
  ctx->out = out;
  ctx->table = std::move(table);
  ctx->numbers = std::move(numbers);
  return PreparedStep{is_long ? &run_gather<int64_t> : &run_gather<int32_t>, std::move(ctx), Tier::own};
}

// embedding(weight, indices, ...)
std::optional<PreparedStep> make_embedding(const torch::jit::Stack& args, c10::ArrayRef<at::Tensor> outs) {
  const auto& weight = args[0].toTensor();
  return outs.size() == 1 && weight.dim() == 2 ? make_gather(outs[0], weight, args[1].toTensor(), 0, false)
                                               : std::nullopt;
}

// index_select(self, dim, index)
std::optional<PreparedStep> make_index_select(const torch::jit::Stack& args, c10::ArrayRef<at::Tensor> outs) {
  const auto& self = args[0].toTensor();
  const auto& index = args[2].toTensor();
  return self.dim() > 0 && index.dim() == 1
             ? make_gather(outs[0], self, index, at::maybe_wrap_dim(args[1].toInt(), self.dim()), false)
             : std::nullopt;
}

// index(self, indices): by one list of numbers of the first dimension.
std::optional<PreparedStep> make_index(const torch::jit::Stack& args, c10::ArrayRef<at::Tensor> outs) {
  const auto& self = args[0].toTensor();
  const auto indices = args[1].toListRef();
  return self.dim() > 0 && indices.size() == 1 && indices[0].isTensor() && indices[0].toTensor().defined()
             ? make_gather(outs[0], self, indices[0].toTensor(), 0, true)
             : std::nullopt;
}

const KernelRow gather_rows[] = {
    {"aten::embedding", "", &make_embedding},
    {"aten::index_select", "", &make_index_select},
    {"aten::index", "Tensor", &make_index},
};

}  // namespace

c10::ArrayRef<KernelRow> own_gathers() { return gather_rows; }

}  // namespace airgraph
