// Which calls PyTorch's own kernels divide among threads: those of OpenMP, which stay awake for a while afterwards.
#pragma once

namespace airgraph {

struct RecordedCall;

// By what an operator is and how much it computes; where in doubt, no.
bool aten_divides(const RecordedCall& call);

// Whether a loop of ATen's over its numbers alone asks for no threads: few numbers, and no product.
bool is_undivided_loop(const RecordedCall& call);

}  // namespace airgraph
