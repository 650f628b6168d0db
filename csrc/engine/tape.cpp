#include "tape.h"

#include <algorithm>
#include <chrono>

#include "../kernels/table.h"
#include "guard.h"
#include "tiers.h"

namespace airgraph {

const char* name_of(Tier tier) {
  switch (tier) {
    case Tier::prepared:
      return "prepared";
    case Tier::typed:
      return "typed";
    case Tier::boxed:
      return "boxed";
    case Tier::functional:
      return "functional";
  }
  return "unknown";
}

Tier Tape::append(RecordedCall call) {
  auto step = prepare(std::move(call));
  entries_.push_back({step.fn, step.ctx.get()});
  steps_.push_back(std::move(step.ctx));
  return step.tier;
}

void Tape::run_beside(const std::vector<Segment>& segments, size_t threads, bool is_worth_waking) {
  schedule_ = std::make_unique<Schedule>(entries_, segments, threads, is_worth_waking);
}

void Tape::replay() {
  const ReplayGuard guard;
  if (schedule_ != nullptr) {
    schedule_->run();
    return;
  }
  size_t index = 0;
  try {
    for (const size_t count = entries_.size(); index < count; ++index) {
      const auto& entry = entries_[index];
      entry.fn(entry.ctx);
    }
  } catch (...) {
    throw_failure(index);
  }
}

std::vector<double> Tape::profile(size_t rounds) {
  using Clock = std::chrono::steady_clock;
  const ReplayGuard guard;
  std::vector<std::vector<double>> samples(entries_.size());
  for (size_t round = 0; round < rounds; ++round) {
    for (size_t index = 0; index < entries_.size(); ++index) {
      const auto start = Clock::now();
      entries_[index].fn(entries_[index].ctx);
      samples[index].push_back(std::chrono::duration<double, std::nano>(Clock::now() - start).count());
    }
  }
  std::vector<double> medians;
  medians.reserve(samples.size());
  for (auto& times : samples) {
    std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2), times.end());
    medians.push_back(times[times.size() / 2]);
  }
  return medians;
}

}  // namespace airgraph
