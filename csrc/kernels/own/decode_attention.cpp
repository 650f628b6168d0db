// Attention of few queries to a cache of keys and values as it lies; heads of queries that share a head of keys are
// served together, so that the cache is read once.
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "../../engine/parallel_loop.h"
#include "attention.h"
#include "elements_of.h"
#include "table.h"

namespace airgraph {
namespace {

using own::Element;

// Keys and values are read at about this.
constexpr double kBytesPerNs = 20;
// Rows of queries that share a head of keys; as in passes/analysis/few_rows.py.
constexpr int64_t kMostSharing = 64;

struct AttentionCtx final : Step {
  at::Tensor out, query, key, value, mask;  // [batch, heads, queries or length, size]; mask expanded, or undefined
  int64_t batch, heads, shared, groups, queries, length, size;
  float scale;
  size_t part_ns;
  at::ScalarType dtype;
  own::RowProductsFn products;
  const own::AttentionFns* fns;
  Element element;
  float* scratch;  // of a replay: as much as `scratch_numel()` for each thread

  int64_t padded() const { return (length + own::kPadding - 1) / own::kPadding * own::kPadding; }
  int64_t scratch_numel() const { return groups * queries * 2 * (size + padded()); }
};

template <class T>
void read_row(const at::Tensor& from, int64_t b, int64_t h, int64_t row, int64_t count, float* to) {
  const T* data =
      static_cast<const T*>(from.const_data_ptr()) + b * from.stride(0) + h * from.stride(1) + row * from.stride(2);
  const int64_t step = from.stride(3);
  for (int64_t i = 0; i < count; ++i) {
    to[i] = static_cast<float>(data[i * step]);
  }
}

void read_row(const at::Tensor& from, int64_t b, int64_t h, int64_t row, int64_t count, float* to) {
  switch (from.scalar_type()) {
    case at::kBFloat16:
      return read_row<at::BFloat16>(from, b, h, row, count, to);
    case at::kHalf:
      return read_row<at::Half>(from, b, h, row, count, to);
    default:
      return read_row<float>(from, b, h, row, count, to);
  }
}

template <class T>
void write_row(const at::Tensor& to, int64_t b, int64_t h, int64_t row, int64_t count, const float* from, float by) {
  T* data = static_cast<T*>(to.mutable_data_ptr()) + b * to.stride(0) + h * to.stride(1) + row * to.stride(2);
  const int64_t step = to.stride(3);
  for (int64_t i = 0; i < count; ++i) {
    data[i * step] = static_cast<T>(from[i] * by);
  }
}

// Positions up to the last that some query may see; those beyond it have no weight.
int64_t seen(const float* mask, int64_t rows, int64_t ld, int64_t length) {
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  int64_t most = 0;
  for (int64_t m = 0; m < rows; ++m) {
    int64_t last = length;
    while (last > most && mask[static_cast<size_t>(m * ld + last - 1)] == kNone) {
      --last;
    }
    most = std::max(most, last);
  }
  return most;
}

// One head of keys and all that share it.
void run_attention_part(const void* context, size_t part, size_t thread) noexcept {
  const auto& ctx = *static_cast<const AttentionCtx*>(context);
  const int64_t b = static_cast<int64_t>(part) / ctx.shared;
  const int64_t shared = static_cast<int64_t>(part) % ctx.shared;
  const int64_t rows = ctx.groups * ctx.queries;
  const int64_t padded = ctx.padded();
  float* const query = ctx.scratch + static_cast<int64_t>(thread) * ctx.scratch_numel();
  float* const mixed = query + rows * ctx.size;
  float* const scores = mixed + rows * ctx.size;
  float* const masks = scores + rows * padded;
  int64_t length = ctx.length;
  for (int64_t m = 0; m < rows; ++m) {
    const int64_t head = shared * ctx.groups + m / ctx.queries;
    read_row(ctx.query, b, head, m % ctx.queries, ctx.size, query + m * ctx.size);
    if (ctx.mask.defined()) {
      read_row(ctx.mask, b, head, m % ctx.queries, ctx.length, masks + m * padded);
    }
  }
  if (ctx.mask.defined()) {
    length = std::max<int64_t>(1, seen(masks, rows, padded, ctx.length));
  }
  const auto at = [&](const at::Tensor& t) {
    return static_cast<const char*>(t.const_data_ptr()) +
           (b * t.stride(0) + shared * t.stride(1)) * static_cast<int64_t>(t.element_size());
  };
  const own::RowProducts products{query, ctx.size, rows, at(ctx.key), ctx.key.stride(2), ctx.size, scores, padded};
  ctx.products(products, 0, length);
  float by[kMostSharing];
  for (int64_t m = 0; m < rows; ++m) {
    const float* mask = ctx.mask.defined() ? masks + m * padded : nullptr;
    // Where nothing may be seen the result is zero, as of the flash kernel.
    const float sum = ctx.fns->softmax(scores + m * padded, mask, length, ctx.scale);
    by[m] = sum == 0 ? 0 : 1 / sum;
  }
  const own::WeightedRows weighted{scores, padded,   rows,  at(ctx.value), ctx.value.stride(2),
                                   length, ctx.size, mixed, ctx.size};
  ctx.fns->weighted[static_cast<int>(ctx.element)](weighted);
  for (int64_t m = 0; m < rows; ++m) {
    const int64_t head = shared * ctx.groups + m / ctx.queries;
    const float* from = mixed + m * ctx.size;
    switch (ctx.dtype) {
      case at::kBFloat16:
        write_row<at::BFloat16>(ctx.out, b, head, m % ctx.queries, ctx.size, from, by[m]);
        break;
      case at::kHalf:
        write_row<at::Half>(ctx.out, b, head, m % ctx.queries, ctx.size, from, by[m]);
        break;
      default:
        write_row<float>(ctx.out, b, head, m % ctx.queries, ctx.size, from, by[m]);
    }
  }
}

void run_attention(Step* step) {
  auto& ctx = *static_cast<AttentionCtx*>(step);
  // Of the thread that replays, for all its attentions: a part must not fail.
  thread_local std::vector<float> scratch;
  const auto numel = static_cast<size_t>(ctx.scratch_numel()) * ParallelLoop::threads_of_next();
  if (scratch.size() < numel) {
    scratch.resize(numel);
  }
  ctx.scratch = scratch.data();
  ParallelLoop::run(static_cast<size_t>(ctx.batch * ctx.shared), ctx.part_ns, &run_attention_part, &ctx);
}

std::optional<PreparedStep> make_attention(const torch::jit::Stack& args, c10::ArrayRef<at::Tensor> outs) {
  auto ctx = std::make_unique<AttentionCtx>();
  ctx->query = args[0].toTensor();
  ctx->key = args[1].toTensor();
  ctx->value = args[2].toTensor();
  ctx->out = outs[0];
  ctx->dtype = ctx->query.scalar_type();
  const auto element = own::element_of(ctx->dtype);
  const auto lies_in_rows = [&](const at::Tensor& t) { return t.scalar_type() == ctx->dtype && t.stride(3) == 1; };
  if (!element || *element == Element::i8 || ctx->query.dim() != 4 || ctx->key.dim() != 4 ||
      ctx->key.sizes() != ctx->value.sizes() || ctx->query.size(0) != ctx->key.size(0) ||
      ctx->query.size(3) != ctx->key.size(3) || !lies_in_rows(ctx->key) || !lies_in_rows(ctx->value) ||
      ctx->out.numel() == 0 || ctx->key.numel() == 0) {
    return std::nullopt;
  }
  ctx->batch = ctx->query.size(0);
  ctx->heads = ctx->query.size(1);
  ctx->queries = ctx->query.size(2);
  ctx->size = ctx->query.size(3);
  ctx->shared = ctx->key.size(1);
  ctx->length = ctx->key.size(2);
  ctx->groups = ctx->heads / ctx->shared;
  if (ctx->groups * ctx->queries > kMostSharing || ctx->heads != ctx->groups * ctx->shared) {
    return std::nullopt;
  }
  if (!args[3].isNone()) {
    const auto& mask = args[3].toTensor();
    const auto type = mask.scalar_type();
    if (type != at::kFloat && type != ctx->dtype) {
      return std::nullopt;
    }
    ctx->mask = mask.expand({ctx->batch, ctx->heads, ctx->queries, ctx->length});
  }
  ctx->scale = static_cast<float>(args[4].toDouble());
  ctx->element = *element;
  ctx->products = own::row_products(*element);
  ctx->fns = &own::attention_fns();
  const auto nbytes = static_cast<double>(2 * ctx->length * ctx->size) * static_cast<double>(ctx->key.element_size());
  ctx->part_ns = static_cast<size_t>(nbytes / kBytesPerNs);
  const auto parts = static_cast<size_t>(ctx->batch * ctx->shared);
  if (parts > ParallelLoop::kMostParts) {
    return std::nullopt;
  }
  return PreparedStep{&run_attention, std::move(ctx), Tier::own, parts > 1};
}

const KernelRow attention_rows[] = {
    {"airgraph::decode_attention", "", &make_attention},
};

}  // namespace

c10::ArrayRef<KernelRow> own_attention() { return attention_rows; }

}  // namespace airgraph
