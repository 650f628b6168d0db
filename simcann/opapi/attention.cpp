// Fused attention in its several entry points. One function computes them all, in float, step by step.
#include "operator.h"

#include <limits>
#include <string_view>

using namespace simcann::opapi;

namespace {

enum class Sparse : int64_t { given_mask = 0, all_mask = 1, causal_top_left = 2, causal_bottom_right = 3, band = 4 };

struct Attention {
  int64_t heads;
  int64_t key_heads;  // 0: as many as heads
  double scale;
  std::string_view layout;
  Sparse sparse;
  int64_t pre_tokens;
  int64_t next_tokens;
};

// Any layout of (batch, heads, sequence, size of a head) to that order.
Tensor to_bnsd(const Tensor& tensor, std::string_view layout, int64_t heads) {
  if (layout == "BNSD") {
    return tensor;
  }
  if (layout == "BSND") {
    return tensor.transpose(1, 2);
  }
  if (layout == "BSH") {
    return tensor.unflatten(2, {heads, tensor.size(2) / heads}).transpose(1, 2);
  }
  if (layout == "SBH") {
    return tensor.unflatten(2, {heads, tensor.size(2) / heads}).permute({1, 2, 0, 3});
  }
  TORCH_CHECK(false, "attention in layout ", layout, " is not simulated; add it to simcann/opapi/attention.cpp");
}

Tensor from_bnsd(const Tensor& tensor, std::string_view layout) {
  if (layout == "BSND") {
    return tensor.transpose(1, 2);
  }
  if (layout == "BSH") {
    return tensor.transpose(1, 2).flatten(2);
  }
  if (layout == "SBH") {
    return tensor.permute({2, 0, 1, 3}).flatten(2);
  }
  return tensor;
}

// True where a query must not see a key; undefined if all see all.
Tensor hidden(const Attention& how, const Tensor& mask, int64_t queries, int64_t keys) {
  const auto row = at::arange(queries, at::kLong).unsqueeze(1);
  const auto column = at::arange(keys, at::kLong).unsqueeze(0);
  switch (how.sparse) {
    case Sparse::causal_top_left:
      return column.gt(row);
    case Sparse::causal_bottom_right:
      return column.gt(row + (keys - queries));
    case Sparse::band:
      return column.lt(row - how.pre_tokens).logical_or(column.gt(row + how.next_tokens));
    case Sparse::given_mask:
    case Sparse::all_mask:
      break;
  }
  return mask.defined() ? mask.to(at::kBool) : mask;
}

struct Result {
  Tensor out;
  Tensor maximum;
  Tensor sum;
};

// kept: the dropout mask, one bit an attention weight; undefined for none.
Result attend(const Attention& how, const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& pse,
              const Tensor& mask, const Ints& key_lengths, const Tensor& kept, double keep_probability) {
  const auto key_heads = how.key_heads == 0 ? how.heads : how.key_heads;
  const auto q = to_bnsd(query, how.layout, how.heads).to(at::kFloat);
  auto k = to_bnsd(key, how.layout, key_heads).to(at::kFloat);
  auto v = to_bnsd(value, how.layout, key_heads).to(at::kFloat);
  if (q.size(1) != k.size(1)) {
    k = k.repeat_interleave(q.size(1) / k.size(1), 1);
    v = v.repeat_interleave(q.size(1) / v.size(1), 1);
  }
  auto scores = at::matmul(q, k.transpose(-2, -1)) * how.scale;
  if (pse.defined()) {
    scores = scores + pse.to(at::kFloat);
  }
  const auto minus_infinity = -std::numeric_limits<float>::infinity();
  if (const auto masked = hidden(how, mask, q.size(2), k.size(2)); masked.defined()) {
    scores = scores.masked_fill(masked, minus_infinity);
  }
  if (!key_lengths.empty()) {
    auto lengths = at::tensor(key_lengths, at::kLong);
    const auto beyond = at::arange(k.size(2), at::kLong).unsqueeze(0).ge(lengths.unsqueeze(1));
    scores = scores.masked_fill(beyond.view({-1, 1, 1, k.size(2)}), minus_infinity);
  }
  // A query that sees no key gets zeros.
  const auto maximum = scores.amax(-1, true).nan_to_num(0, std::nullopt, 0);
  const auto exponentials = at::exp(scores - maximum);
  const auto sum = exponentials.sum(-1, true);
  auto weights = exponentials / sum.masked_fill(sum.eq(0), 1);
  if (kept.defined()) {
    const auto bits = at::bitwise_right_shift(kept.reshape({-1, 1}).to(at::kInt), at::arange(8, at::kInt));
    const auto flags = bits.bitwise_and(1).view({-1}).slice(0, 0, weights.numel()).view(weights.sizes());
    weights = weights * flags / keep_probability;
  }
  return {from_bnsd(at::matmul(weights, v), how.layout), maximum, sum};
}

const Tensor& only(const TensorList& list) {
  TORCH_CHECK(list.size() == 1, "attention over ", list.size(), " separate key tensors is not simulated");
  return list.front();
}

void refuse(const Tensor& argument, std::string_view name) {
  TORCH_CHECK(!argument.defined(), "attention with ", name, " is not simulated; add it to simcann/opapi/attention.cpp");
}

}  // namespace

SIMCANN_OPERATOR(20, aclnnFlashAttentionScore,
                 [](const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& pse,
                    const Tensor& drop_mask, const Tensor& padding_mask, const Tensor& mask, const Ints& prefix,
                    double scale, double keep_probability, int64_t pre_tokens, int64_t next_tokens, int64_t heads,
                    const Text& layout, int64_t, int64_t sparse, Tensor& softmax_max, Tensor& softmax_sum, Tensor&,
                    Tensor& out) {
                   refuse(padding_mask, "a padding mask");
                   TORCH_CHECK(prefix.empty(), "attention with a prefix is not simulated");
                   int64_t key_heads = 0;
                   if (layout == "BSH" || layout == "SBH") {
                     key_heads = key.size(2) / (query.size(2) / heads);
                   }
                   const Attention how{heads, key_heads, scale, layout, Sparse(sparse), pre_tokens, next_tokens};
                   const auto result =
                       attend(how, query, key, value, pse, mask, {}, drop_mask, keep_probability);
                   store(out, result.out);
                   softmax_max.copy_(result.maximum.expand(softmax_max.sizes()));
                   softmax_sum.copy_(result.sum.expand(softmax_sum.sizes()));
                 })

SIMCANN_OPERATOR(21, aclnnPromptFlashAttentionV3,
                 [](const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& pse, const Tensor& mask,
                    const Ints&, const Ints& key_lengths, const Tensor& dequant_scale1, const Tensor& quant_scale1,
                    const Tensor& dequant_scale2, const Tensor& quant_scale2, const Tensor& quant_offset2,
                    int64_t heads, double scale, int64_t pre_tokens, int64_t next_tokens, const Text& layout,
                    int64_t key_heads, int64_t sparse, int64_t, Tensor& out) {
                   for (const auto& scales :
                        {dequant_scale1, quant_scale1, dequant_scale2, quant_scale2, quant_offset2}) {
                     refuse(scales, "quantisation");
                   }
                   const Attention how{heads, key_heads, scale, layout, Sparse(sparse), pre_tokens, next_tokens};
                   store(out, attend(how, query, key, value, pse, mask, key_lengths, {}, 1).out);
                 })

SIMCANN_OPERATOR(22, aclnnIncreFlashAttentionV4,
                 [](const Tensor& query, const TensorList& key, const TensorList& value, const Tensor& pse,
                    const Tensor& mask, const Ints& key_lengths, const Tensor& dequant_scale1,
                    const Tensor& quant_scale1, const Tensor& dequant_scale2, const Tensor& quant_scale2,
                    const Tensor& quant_offset2, const Tensor& antiquant_scale, const Tensor& antiquant_offset,
                    const Tensor& block_table, const Tensor& padding_size, int64_t heads, double scale,
                    const Text& layout, int64_t key_heads, int64_t, int64_t, Tensor& out) {
                   for (const auto& scales : {dequant_scale1, quant_scale1, dequant_scale2, quant_scale2,
                                              quant_offset2, antiquant_scale, antiquant_offset}) {
                     refuse(scales, "quantisation");
                   }
                   refuse(block_table, "a block table");
                   refuse(padding_size, "a padding size");
                   const Attention how{heads, key_heads, scale, layout, Sparse::given_mask, 0, 0};
                   store(out, attend(how, query, only(key), only(value), pse, mask, key_lengths, {}, 1).out);
                 })

SIMCANN_OPERATOR(
    42, aclnnFusedInferAttentionScoreV3,
    [](const Tensor& query, const TensorList& key, const TensorList& value, const Tensor& pse, const Tensor& mask,
       const Ints&, const Ints& key_lengths, const Tensor& dequant_scale1, const Tensor& quant_scale1,
       const Tensor& dequant_scale2, const Tensor& quant_scale2, const Tensor& quant_offset2,
       const Tensor& antiquant_scale, const Tensor& antiquant_offset, const Tensor& block_table,
       const Tensor& query_padding_size, const Tensor& key_padding_size, const Tensor& key_antiquant_scale,
       const Tensor& key_antiquant_offset, const Tensor& value_antiquant_scale, const Tensor& value_antiquant_offset,
       const Tensor& key_shared_prefix, const Tensor& value_shared_prefix, const Ints&, const Tensor& query_rope,
       const Tensor& key_rope, const Tensor& key_rope_antiquant_scale, int64_t heads, double scale, int64_t pre_tokens,
       int64_t next_tokens, const Text& layout, int64_t key_heads, int64_t sparse, int64_t, int64_t, int64_t,
       bool with_lse, int64_t, int64_t, Tensor& out, Tensor& lse) {
      for (const auto& scales :
           {dequant_scale1, quant_scale1, dequant_scale2, quant_scale2, quant_offset2, antiquant_scale,
            antiquant_offset, key_antiquant_scale, key_antiquant_offset, value_antiquant_scale, value_antiquant_offset,
            key_rope_antiquant_scale}) {
        refuse(scales, "quantisation");
      }
      for (const auto& size : {query_padding_size, key_padding_size}) {
        refuse(size, "a padding size");
      }
      for (const auto& prefix : {key_shared_prefix, value_shared_prefix}) {
        refuse(prefix, "a shared prefix");
      }
      for (const auto& rope : {query_rope, key_rope}) {
        refuse(rope, "rotary parts");
      }
      refuse(block_table, "a block table");
      const Attention how{heads, key_heads, scale, layout, Sparse(sparse), pre_tokens, next_tokens};
      const auto result = attend(how, query, only(key), only(value), pse, mask, key_lengths, {}, 1);
      store(out, result.out);
      if (with_lse) {
        store(lse, result.maximum + at::log(result.sum));
      }
    })
SIMCANN_MAX_WORKSPACE(42, aclnnFusedInferAttentionScoreV3)
