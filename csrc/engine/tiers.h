// Chooses how a recorded call is served at replay.
#pragma once

#include <utility>

#include "tape.h"

namespace airgraph {

std::pair<PreparedStep, Tier> prepare(RecordedCall call);

}  // namespace airgraph
