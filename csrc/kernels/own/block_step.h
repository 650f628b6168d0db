// Products of many rows, as steps of a tape.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>

#include "../../engine/step.h"
#include "packed_weight.h"

namespace airgraph {

// out = left @ right + bias, of one matrix or of each of a batch; all are float32. bias: undefined, or of one row.
// packed: `right` in panels, or null. nullopt where their layouts are not served.
std::optional<PreparedStep> make_block_products(const at::Tensor& left, const at::Tensor& right, const at::Tensor& bias,
                                                const at::Tensor& out, std::shared_ptr<PackedWeight> packed);

}  // namespace airgraph
