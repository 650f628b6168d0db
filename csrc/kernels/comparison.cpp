#include <ATen/CPUFunctions.h>

#include "table.h"
#include "typed.h"

namespace airgraph {
namespace {

using namespace typed;

#define COMPARE(op) AIRGRAPH_OUT(op, "Tensor", T, T), AIRGRAPH_OUT(op, "Scalar", T, S)

const KernelRow comparison_rows[] = {
    COMPARE(eq),
    COMPARE(ne),
    COMPARE(lt),
    COMPARE(le),
    COMPARE(gt),
    COMPARE(ge),
    AIRGRAPH_OUT(logical_and, "", T, T),
    AIRGRAPH_OUT(logical_or, "", T, T),
    AIRGRAPH_OUT(logical_xor, "", T, T),
};

}  // namespace

c10::ArrayRef<KernelRow> comparison_kernels() { return comparison_rows; }

}  // namespace airgraph
