#include "tape.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>

#include "../kernels/table.h"
#include "aten_threads.h"
#include "guard.h"
#include "tiers.h"

namespace airgraph {
namespace {

// A step that notes when it is run and where.
struct TimedStep : Step {
  using Clock = std::chrono::steady_clock;

  explicit TimedStep(Entry entry) : entry(entry) {}

  static void run(Step* step) {
    auto& self = *static_cast<TimedStep*>(step);
    self.thread = std::this_thread::get_id();
    self.begin = Clock::now();
    self.entry.fn(self.entry.ctx);
    self.end = Clock::now();
  }

  const Entry entry;
  std::thread::id thread;
  Clock::time_point begin;
  Clock::time_point end;
};

void run_by_another(Step* /*step*/) {}

template <bool kLooksAhead>
inline void run_each(const std::vector<Entry>& entries, const LookAhead& ahead, size_t& index) {
  for (const size_t count = entries.size(); index < count; ++index) {
    if constexpr (kLooksAhead) {
      ahead.fetch_after(index);
    }
    const auto& entry = entries[index];
    entry.fn(entry.ctx);
  }
}

// schedule: of these entries; null: one after another.
inline void run(const std::vector<Entry>& entries, const LookAhead& ahead, Schedule* schedule) {
  if (schedule != nullptr) {
    schedule->run();
    return;
  }
  size_t index = 0;
  try {
    if (ahead.pays()) {
      run_each<true>(entries, ahead, index);
    } else {
      run_each<false>(entries, ahead, index);
    }
  } catch (...) {
    throw_failure(index);
  }
}

}  // namespace

const char* name_of(Tier tier) {
  switch (tier) {
    case Tier::own:
      return "own";
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
  for (const auto& arg : call.args) {
    if (arg.isTensor()) {
      ahead_.note(arg.toTensor());
    } else if (arg.isTensorList()) {
      for (const at::Tensor& tensor : arg.toTensorVector()) {
        ahead_.note(tensor);
      }
    }
  }
  for (const auto& out : call.outs) {
    ahead_.note(out);
  }
  const bool may_be_divided = at::get_num_threads() > 1 && aten_divides(call);
  const bool is_undivided = is_undivided_loop(call);
  auto step = prepare(std::move(call));
  ahead_.add(step.ctx.get());
  entries_.push_back({step.fn, step.ctx.get()});
  steps_.push_back(std::move(step.ctx));
  take_last();
  if ((step.has_parts || (sharing_ != nullptr && sharing_->has_parts_together())) && loop_ == nullptr &&
      at::get_num_threads() > 1) {
    loop_ = std::make_unique<ParallelLoop>(static_cast<size_t>(at::get_num_threads()));
  }
  const bool is_atens = step.tier != Tier::own || step.runs_atens;
  const bool is_loop = step.tier == Tier::own || step.tier == Tier::prepared;
  may_ask_for_threads_ = may_ask_for_threads_ || (is_atens && !(is_loop && is_undivided));
  calls_others_ = calls_others_ || step.tier == Tier::boxed || step.tier == Tier::functional;
  is_divided_by_aten_ = is_divided_by_aten_ || (may_be_divided && step.tier != Tier::own);
  if (loop_ != nullptr && is_divided_by_aten_) {
    loop_->leave_to_atens_threads();
  }
  return step.tier;
}

void Tape::take_last() {
  auto& last = entries_.back();
  if (sharing_ != nullptr && sharing_->take(*last.ctx)) {
    taken_.push_back({entries_.size() - 1, last.fn});
    last.fn = &run_by_another;
  } else {
    sharing_ = dynamic_cast<SharedStep*>(last.ctx);
  }
}

void Tape::let_go() {
  for (const auto& [index, fn] : taken_) {
    entries_[index].fn = fn;
  }
  taken_.clear();
  sharing_ = nullptr;
  for (const auto& step : steps_) {
    if (auto* shared = dynamic_cast<SharedStep*>(step.get())) {
      shared->let_go();
    }
  }
}

void Tape::run_beside(const std::vector<Segment>& segments, size_t threads, bool is_worth_waking) {
  let_go();
  segments_ = segments;
  schedule_ = std::make_unique<Schedule>(entries_, segments, threads, is_worth_waking, may_ask_for_threads_);
  // Where streams run beside one another, the team is theirs.
  loop_.reset();
}

void Tape::replay() {
  const Pace::Turn turn(pace_);
  const ReplayGuard guard;
  const ParallelLoop::Replay loops(loop_.get());
  run(entries_, ahead_, schedule_.get());
}

std::vector<Moment> Tape::timeline(size_t rounds) {
  let_go();
  std::vector<std::unique_ptr<TimedStep>> timed;
  std::vector<Entry> entries;
  for (const auto& entry : entries_) {
    timed.push_back(std::make_unique<TimedStep>(entry));
    entries.push_back({&TimedStep::run, timed.back().get()});
  }
  std::vector<Moment> moments;
  {
    const ReplayGuard guard;
    const ParallelLoop::Replay loops(loop_.get());
    std::unique_ptr<Schedule> schedule;
    if (schedule_ != nullptr) {
      schedule = std::make_unique<Schedule>(entries, segments_, schedule_->threads(), true, may_ask_for_threads_);
    }
    for (size_t round = 0; round < rounds; ++round) {
      run(entries, ahead_, schedule.get());
    }
  }
  std::vector<std::thread::id> threads{std::this_thread::get_id()};
  for (const auto& step : timed) {
    auto found = std::find(threads.begin(), threads.end(), step->thread);
    if (found == threads.end()) {
      found = threads.insert(found, step->thread);
    }
    const auto since = [](TimedStep::Clock::time_point at) {
      return std::chrono::duration_cast<std::chrono::nanoseconds>(at.time_since_epoch()).count();
    };
    moments.push_back({since(step->begin), since(step->end), static_cast<size_t>(found - threads.begin())});
  }
  return moments;
}

}  // namespace airgraph
