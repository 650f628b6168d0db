// Products of few rows with matrices that lie as a Linear's weight does, as steps of a tape.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "../../engine/step.h"

namespace airgraph {

// Of `left`. More are a matter of arithmetic.
constexpr int64_t kMostProductRows = 8;

// out = left @ right * scale + bias, of one matrix or of each of a batch. scale, bias: may be undefined.
// nullopt where their layouts or types are not served.
std::optional<PreparedStep> make_row_products(const at::Tensor& left, const at::Tensor& right, const at::Tensor& scale,
                                              const at::Tensor& bias, const at::Tensor& out);

}  // namespace airgraph
