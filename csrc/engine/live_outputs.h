#pragma once

namespace airgraph {

// What a replay does with an output that the caller still holds.
enum class LiveOutputs { preserve, warn, error, overwrite };

}  // namespace airgraph
