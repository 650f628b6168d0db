#include "forms.h"

#include <ATen/TensorIterator.h>

namespace airgraph {

std::pair<std::vector<int64_t>, std::vector<int64_t>> pointwise_form(const std::vector<at::Tensor>& operands) {
  at::TensorIteratorConfig config;
  // Without kernels, types do not matter.
  config.set_check_mem_overlap(false).check_all_same_dtype(false).check_all_same_device(false);
  config.declare_static_dtype_and_device(at::kFloat, at::kMeta);
  config.add_owned_output(at::Tensor());
  for (const auto& operand : operands) {
    config.add_owned_const_input(operand);
  }
  const auto iterator = config.build();
  const auto& made = iterator.tensor(0);
  return {made.sizes().vec(), made.strides().vec()};
}

}  // namespace airgraph
