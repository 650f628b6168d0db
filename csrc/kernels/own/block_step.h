// Products of many rows, as steps of a tape.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>
#include <c10/util/ArrayRef.h>

#include <memory>
#include <optional>
#include <string>

#include "../../engine/step.h"
#include "packed_weight.h"

namespace airgraph {

// out = left @ right + bias, of one matrix or of each of a batch; all are float32. bias: undefined, or of one row.
// packed: `right` in panels, or null. nullopt where their layouts are not served.
std::optional<PreparedStep> make_block_products(const at::Tensor& left, const at::Tensor& right, const at::Tensor& bias,
                                                const at::Tensor& out, std::shared_ptr<PackedWeight> packed);

// A call of aten::mm or aten::addmm by what was packed of its matrix; nullopt where it is none that is served so.
std::optional<PreparedStep> make_packed_product(const std::string& name, const torch::jit::Stack& args,
                                                c10::ArrayRef<at::Tensor> outs, std::shared_ptr<PackedWeight> packed);

}  // namespace airgraph
