// Chooses how a recorded call is served at replay.
#pragma once

#include "tape.h"

namespace airgraph {

PreparedStep prepare(RecordedCall call);

}  // namespace airgraph
