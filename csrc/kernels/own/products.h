#pragma once

#include <ATen/core/stack.h>
#include <c10/util/ArrayRef.h>

#include <memory>
#include <optional>
#include <string>

#include "../../engine/step.h"
#include "packed_weight.h"

namespace airgraph {

// A call of aten::mm or aten::addmm by what was packed of its matrix; nullopt where it is none that is served so.
std::optional<PreparedStep> make_packed_product(const std::string& name, const torch::jit::Stack& args,
                                                c10::ArrayRef<at::Tensor> outs, std::shared_ptr<PackedWeight> packed);

}  // namespace airgraph
