// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/library.h>

namespace simcuda {

void register_special(torch::Library& library);
void register_attention(torch::Library& library);

}  // namespace simcuda
