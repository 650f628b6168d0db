#include "tape.h"

#include <ATen/core/LegacyTypeDispatch.h>

#include "../kernels/table.h"
#include "tiers.h"

namespace airgraph {

Tier Tape::append(RecordedCall call) {
  auto [prepared, tier] = prepare(std::move(call));
  entries_.push_back({prepared.fn, prepared.ctx.get()});
  steps_.push_back(std::move(prepared.ctx));
  return tier;
}

void Tape::replay() {
  const at::AutoDispatchBelowADInplaceOrView guard;
  size_t index = 0;
  try {
    for (const size_t count = entries_.size(); index < count; ++index) {
      const auto& entry = entries_[index];
      entry.fn(entry.ctx);
    }
  } catch (const c10::Error& error) {
    throw ReplayFailure(index, error.what_without_backtrace());
  } catch (const std::exception& error) {
    throw ReplayFailure(index, error.what());
  }
}

}  // namespace airgraph
