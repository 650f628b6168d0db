// How a device may lay elements out in memory, beside what strides say.
#pragma once

#include <ATen/core/Tensor.h>

namespace airgraph {

// Whether a tensor's elements lie where its strides say, so that it can be copied as bytes. Ascend has formats of its
// own, which a tensor may take on while its strides stay.
bool lies_in_rows(const at::Tensor& tensor);

}  // namespace airgraph
