// SPDX-License-Identifier: Apache-2.0
// Attention as only CUDA has it, computed by its elementary operators. Without dropout, and forward only.
#include <ATen/ATen.h>

#include <cmath>

#include "arguments.h"
#include "registration.h"
#include "serve.h"

namespace simcuda {
namespace {

using OptionalTensor = std::optional<at::Tensor>;

void refuse_dropout(double probability) {
  TORCH_CHECK(probability == 0, "simcuda: attention with dropout (here ", probability, ") is not simulated");
}

// [batch, heads, length, size], laid out as [batch, length, heads, size], as the kernels write it.
at::Tensor output_for(const at::Tensor& query, const at::Tensor& value) {
  return at::empty({query.size(0), query.size(2), query.size(1), value.size(3)}, query.options()).transpose(1, 2);
}

// Softmax over keys whose heads may each serve several of the query's.
void attend(const at::Tensor& query, at::Tensor key, at::Tensor value, const OptionalTensor& bias, bool is_causal,
            std::optional<double> scale, const at::Tensor& output, const OptionalTensor& logsumexp) {
  const auto groups = query.size(1) / key.size(1);
  if (groups > 1) {
    key = key.repeat_interleave(groups, 1);
    value = value.repeat_interleave(groups, 1);
  }
  const auto factor = scale.value_or(1.0 / std::sqrt(static_cast<double>(query.size(3))));
  auto scores = at::matmul(query.to(at::kFloat), key.to(at::kFloat).transpose(-2, -1)) * factor;
  if (bias) scores = scores + *bias;
  if (is_causal) {
    const auto seen = at::ones({query.size(2), key.size(2)}, at::kBool).tril();
    scores = scores.masked_fill(seen.logical_not(), -INFINITY);
  }
  output.copy_(at::matmul(at::softmax(scores, -1), value.to(at::kFloat)));
  if (logsumexp) logsumexp->narrow(-1, 0, query.size(2)).copy_(at::logsumexp(scores, -1));
}

void launch_attention(const char* name, const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                      const OptionalTensor& bias, bool is_causal, std::optional<double> scale, const at::Tensor& output,
                      const OptionalTensor& logsumexp) {
  const auto record = [](const OptionalTensor& tensor) {
    return tensor && tensor->defined() ? std::optional(TensorRecord(*tensor)) : std::nullopt;
  };
  const auto view = [](const std::optional<TensorRecord>& saved) {
    return saved ? OptionalTensor(saved->view()) : std::nullopt;
  };
  launch_here(name, [=, q = TensorRecord(query), k = TensorRecord(key), v = TensorRecord(value), o = TensorRecord(output),
                     b = record(bias), l = record(logsumexp)] {
    attend(q.view(), k.view(), v.view(), view(b), is_causal, scale, o.view(), view(l));
  });
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> efficient_attention(
    const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, const OptionalTensor& bias,
    bool compute_logsumexp, double dropout, bool is_causal, std::optional<double> scale) {
  refuse_dropout(dropout);
  constexpr int64_t rows_together = 32;
  const auto rows = compute_logsumexp ? (query.size(2) + rows_together - 1) / rows_together * rows_together : 0;
  auto output = output_for(query, value);
  auto logsumexp = at::empty({query.size(0), query.size(1), rows}, query.options().dtype(at::kFloat));
  launch_attention("aten::_scaled_dot_product_efficient_attention", query, key, value, bias, is_causal, scale, output,
                   compute_logsumexp ? OptionalTensor(logsumexp) : std::nullopt);
  const auto none = at::empty({}, query.options().dtype(at::kLong));
  return {output, logsumexp, none, at::empty_like(none)};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, c10::SymInt, c10::SymInt, at::Tensor, at::Tensor, at::Tensor>
flash_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, double dropout, bool is_causal,
                bool, std::optional<double> scale) {
  refuse_dropout(dropout);
  auto output = output_for(query, value);
  auto logsumexp = at::empty({query.size(0), query.size(1), query.size(2)}, query.options().dtype(at::kFloat));
  launch_attention("aten::_scaled_dot_product_flash_attention", query, key, value, std::nullopt, is_causal, scale, output,
                   logsumexp);
  const auto state = at::empty({2}, query.options().dtype(at::kUInt64));
  return {output, logsumexp, at::Tensor(), at::Tensor(), query.size(2), key.size(2),
          state,  at::empty({}, query.options().dtype(at::kUInt64)), at::empty({0}, query.options())};
}

}  // namespace

void register_attention(torch::Library& library) {
  library.impl("_scaled_dot_product_efficient_attention", efficient_attention);
  library.impl("_scaled_dot_product_flash_attention", flash_attention);
}

}  // namespace simcuda
