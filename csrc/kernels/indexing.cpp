#include <ATen/CPUFunctions.h>

#include "table.h"
#include "typed.h"

namespace airgraph {
namespace {

using namespace typed;

const KernelRow indexing_rows[] = {
    AIRGRAPH_OUT(index_select, "", T, I, T),
    AIRGRAPH_OUT(index, "Tensor", T, Indices),
    AIRGRAPH_OUT(index_copy, "", T, I, T, T),
    AIRGRAPH_OUT(index_add, "", T, I, T, T, S),
    AIRGRAPH_OUT(gather, "", T, I, T, B),
    AIRGRAPH_OUT(scatter, "src", T, I, T, T),
    AIRGRAPH_OUT(scatter, "value", T, I, T, S),
    AIRGRAPH_OUT(scatter_add, "", T, I, T, T),
    AIRGRAPH_OUT(tril, "", T, I),
    AIRGRAPH_OUT(triu, "", T, I),
};

}  // namespace

c10::ArrayRef<KernelRow> indexing_kernels() { return indexing_rows; }

}  // namespace airgraph
