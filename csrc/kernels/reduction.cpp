#include <ATen/CPUFunctions.h>

#include "table.h"
#include "typed.h"

namespace airgraph {
namespace {

using namespace typed;

const KernelRow rows[] = {
    AIRGRAPH_OUT(sum, "dim_IntList", T, OInts, B, Dtype),
    AIRGRAPH_OUT(mean, "dim", T, OInts, B, Dtype),
    AIRGRAPH_OUT(prod, "dim_int", T, I, B, Dtype),
    AIRGRAPH_OUT(amax, "", T, Ints, B),
    AIRGRAPH_OUT(amin, "", T, Ints, B),
    AIRGRAPH_OUT(argmax, "", T, std::optional<int64_t>, B),
    AIRGRAPH_OUT(argmin, "", T, std::optional<int64_t>, B),
    AIRGRAPH_OUT(any, "", T),
    AIRGRAPH_OUT(any, "dim", T, I, B),
    AIRGRAPH_OUT(all, "", T),
    AIRGRAPH_OUT(all, "dim", T, I, B),
    AIRGRAPH_OUT(cumsum, "", T, I, Dtype),
    AIRGRAPH_OUT(cumprod, "", T, I, Dtype),
    AIRGRAPH_OUT(_softmax, "", T, I, B),
    AIRGRAPH_OUT(_log_softmax, "", T, I, B),
    AIRGRAPH_OUT2(max, "dim", T, I, B),
    AIRGRAPH_OUT2(min, "dim", T, I, B),
    AIRGRAPH_OUT2(topk, "", T, I, I, B, B),
};

}  // namespace

c10::ArrayRef<KernelRow> reduction_kernels() { return rows; }

}  // namespace airgraph
