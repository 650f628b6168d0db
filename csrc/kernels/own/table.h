// Kernels of our own, which `kernels="fast"` takes before ATen's. Their results may differ from eager's in the last
// bits, never further from the exact value than eager's. A new one: a file, a row in it, and a line in table.cpp.
#pragma once

#include <c10/util/ArrayRef.h>

#include "../../engine/step.h"

namespace airgraph {

c10::ArrayRef<KernelRow> own_products();
c10::ArrayRef<KernelRow> own_grouped_products();
c10::ArrayRef<KernelRow> own_int_products();
c10::ArrayRef<KernelRow> own_attention();
c10::ArrayRef<KernelRow> own_rows();
c10::ArrayRef<KernelRow> own_row_programs();
c10::ArrayRef<KernelRow> own_gathers();
c10::ArrayRef<KernelRow> own_activations();
c10::ArrayRef<KernelRow> own_norms();

// The maker of an operator's kernel of ours, or null.
Maker find_own_kernel(const std::string& name, const std::string& overload);

}  // namespace airgraph
