// SPDX-License-Identifier: Apache-2.0
#include "simdevice/engine/stream.h"

#include <utility>

namespace simdevice {

struct Stream::State {
  explicit State(StreamContext& shared_context, std::int32_t stream_id) : context(shared_context), id(stream_id) {}

  struct Entry {
    Task task;
    std::uint64_t sequence;
  };

  StreamContext& context;
  const std::int32_t id;

  mutable std::mutex mutex;
  std::condition_variable submitted;
  std::condition_variable finished;
  std::deque<Entry> queue;
  std::uint64_t submitted_count = 0;
  std::uint64_t finished_count = 0;
  std::uint64_t cleared_before = 0;  // tasks with a smaller number are dropped
  FailurePtr failure;
  OnFailure on_failure = OnFailure::stop;
  bool thread_started = false;
  bool thread_waiting = false;
  bool closed = false;
};

Stream::Stream(StreamContext& context, std::int32_t id, std::uint32_t priority, std::uint32_t flags)
    : context_(context), id_(id), priority_(priority), flags_(flags), state_(std::make_shared<State>(context, id)) {}

Stream::~Stream() {
  std::lock_guard lock(state_->mutex);
  state_->closed = true;
  state_->submitted.notify_one();
}

void Stream::set_on_failure(OnFailure on_failure) {
  std::lock_guard lock(state_->mutex);
  state_->on_failure = on_failure;
}

void Stream::submit(Task task) {
  if (!context_.runs_tasks) {
    if (task.kind == Task::Kind::record) task.point->finish(nullptr);
    return;
  }
  bool start_thread = false;
  bool wake_thread = false;
  {
    std::lock_guard lock(state_->mutex);
    const auto sequence = context_.next_sequence.fetch_add(1, std::memory_order_relaxed);
    const bool at_head = state_->finished_count == state_->submitted_count;
    if (at_head && task.kind == Task::Kind::kernel) context_.turnstile.announce(sequence);
    state_->queue.push_back({std::move(task), sequence});
    ++state_->submitted_count;
    start_thread = !std::exchange(state_->thread_started, true);
    wake_thread = state_->thread_waiting;
  }
  if (start_thread) {
    context_.workers.start([state = state_] { run(state); });
  } else if (wake_thread) {
    state_->submitted.notify_one();
  }
}

void Stream::record(CompletionPtr point) {
  submit({.kind = Task::Kind::record, .name = "event record", .point = std::move(point)});
}

void Stream::wait_for(CompletionPtr point) {
  submit({.kind = Task::Kind::wait, .name = "event wait", .point = std::move(point)});
}

bool Stream::synchronize(Deadline deadline) {
  std::unique_lock lock(state_->mutex);
  const auto target = state_->submitted_count;
  const auto reached = [&] { return state_->finished_count >= target; };
  if (deadline) return state_->finished.wait_until(lock, *deadline, reached);
  state_->finished.wait(lock, reached);
  return true;
}

bool Stream::idle() const {
  std::lock_guard lock(state_->mutex);
  return state_->finished_count == state_->submitted_count;
}

FailurePtr Stream::failure() const {
  std::lock_guard lock(state_->mutex);
  return state_->failure;
}

void Stream::clear() {
  std::lock_guard lock(state_->mutex);
  clear_count_.fetch_add(1, std::memory_order_release);
  state_->cleared_before = state_->submitted_count;
  state_->failure = nullptr;
}

void Stream::wake() {
  std::lock_guard lock(state_->mutex);
  state_->submitted.notify_one();
}

void Stream::run(std::shared_ptr<State> state) {
  auto& context = state->context;
  std::unique_lock lock(state->mutex);
  while (true) {
    state->thread_waiting = true;
    state->submitted.wait(lock, [&] { return !state->queue.empty() || state->closed || context.workers.stopping(); });
    state->thread_waiting = false;
    if (state->queue.empty()) return;

    State::Entry entry = std::move(state->queue.front());
    state->queue.pop_front();
    const bool dropped = context.workers.stopping() || state->finished_count < state->cleared_before;
    const bool failed = state->failure && state->on_failure == OnFailure::stop;
    FailurePtr failure = state->failure;
    lock.unlock();

    FailurePtr new_failure;
    auto& task = entry.task;
    switch (task.kind) {
      case Task::Kind::kernel:
        try {
          if (!dropped && !failed) {
            context.turnstile.enter(entry.sequence);
            task.body();
          }
        } catch (const DeviceFault& fault) {
          new_failure = fault.failure();
        } catch (const std::exception& error) {
          new_failure = make_failure(Fault::kernel_failed, "kernel '" + task.name + "' failed on stream " +
                                                                        std::to_string(state->id) + ": " +
                                                                        error.what());
        }
        context.turnstile.leave(entry.sequence);
        break;
      case Task::Kind::record:
        task.point->finish(std::move(failure));
        break;
      case Task::Kind::wait:
        if (dropped) break;
        task.point->wait();
        new_failure = task.point->failure();
        break;
    }
    // Before the task counts as finished: its captures may hold memory that the waiting host is about to check.
    entry.task = {};

    lock.lock();
    if (new_failure && !state->failure) state->failure = std::move(new_failure);
    ++state->finished_count;
    state->finished.notify_all();
  }
}

}  // namespace simdevice
