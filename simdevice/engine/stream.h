// SPDX-License-Identifier: Apache-2.0
// A stream: tasks in order, one at a time, on a thread that is started with the first task.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "simdevice/engine/completion.h"
#include "simdevice/engine/schedule.h"
#include "simdevice/engine/workers.h"

namespace simdevice {

struct Task {
  enum class Kind {
    kernel,  // runs `body`; skipped once the stream has failed
    record,  // finishes `point`, also on a stream that has failed: somebody may be waiting
    wait,    // waits for `point` and takes over its failure
  };
  Kind kind = Kind::kernel;
  std::string name = {};
  std::function<void()> body = {};
  CompletionPtr point = nullptr;
};

// What all streams of a device share.
struct StreamContext {
  Workers& workers;
  Turnstile& turnstile;
  std::atomic<std::uint64_t> next_sequence{0};
  // False: nothing runs and no thread is started; every task is complete the moment it is submitted.
  bool runs_tasks = true;
};

class Stream {
 public:
  enum class OnFailure { stop, go_on };
  // Where work on this stream goes: to its thread, into a graph, or into the update of a task group.
  enum class Recording { none, captured, update };

  Stream(StreamContext& context, std::int32_t id, std::uint32_t priority, std::uint32_t flags);
  ~Stream();  // what is queued still runs
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  std::int32_t id() const noexcept { return id_; }
  std::uint32_t priority() const noexcept { return priority_.load(std::memory_order_relaxed); }
  void set_priority(std::uint32_t priority) noexcept { priority_.store(priority, std::memory_order_relaxed); }
  std::uint32_t flags() const noexcept { return flags_; }
  void set_on_failure(OnFailure on_failure);

  Recording recording() const noexcept { return recording_.load(std::memory_order_acquire); }
  void set_recording(Recording recording) noexcept { recording_.store(recording, std::memory_order_release); }

  void submit(Task task);
  void record(CompletionPtr point);
  void wait_for(CompletionPtr point);

  // Waits for what had been submitted when it was called. False if the deadline passed first.
  bool synchronize(Deadline deadline);
  bool idle() const;

  // The first failure since the last `clear`; it stays, as on a device, and what comes after it is not run.
  FailurePtr failure() const;
  // Drop what is queued (records still finish) and forget the failure.
  void clear();
  // Grows with every `clear`: work that waits for something can find out that it is no longer wanted.
  std::uint64_t clear_count() const noexcept { return clear_count_.load(std::memory_order_acquire); }
  // Let the thread notice that the workers are to stop.
  void wake();

 private:
  struct State;
  static void run(std::shared_ptr<State> state);

  StreamContext& context_;
  const std::int32_t id_;
  std::atomic<std::uint32_t> priority_;
  const std::uint32_t flags_;
  std::atomic<std::uint64_t> clear_count_{0};
  std::atomic<Recording> recording_{Recording::none};
  const std::shared_ptr<State> state_;  // shared with the thread, which may outlive the stream
};

}  // namespace simdevice
