#include <ATen/CPUFunctions.h>

#include "table.h"
#include "typed.h"

namespace airgraph {
namespace {

using namespace typed;

const KernelRow rows[] = {
    AIRGRAPH_OUT(mm, "", T, T),
    AIRGRAPH_OUT(addmm, "", T, T, T, S, S),
    AIRGRAPH_OUT(bmm, "", T, T),
    AIRGRAPH_OUT(baddbmm, "", T, T, T, S, S),
    AIRGRAPH_OUT(addmv, "", T, T, T, S, S),
};

}  // namespace

c10::ArrayRef<KernelRow> matmul_kernels() { return rows; }

}  // namespace airgraph
