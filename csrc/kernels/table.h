// All typed kernels, by operator name. A new kernel: a row in one of the files, or a file and a line here.
#pragma once

#include <c10/util/ArrayRef.h>

#include "../engine/step.h"

namespace airgraph {

c10::ArrayRef<KernelRow> pointwise_kernels();
c10::ArrayRef<KernelRow> comparison_kernels();
c10::ArrayRef<KernelRow> reduction_kernels();
c10::ArrayRef<KernelRow> matmul_kernels();
c10::ArrayRef<KernelRow> indexing_kernels();
c10::ArrayRef<KernelRow> fill_kernels();
c10::ArrayRef<KernelRow> nn_kernels();
c10::ArrayRef<KernelRow> block_copy_kernels();

// The maker of an operator's typed call, or null.
Maker find_kernel(const std::string& name, const std::string& overload);

size_t kernel_count();

}  // namespace airgraph
