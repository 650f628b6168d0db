#include "replay_lock.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <new>
#include <unordered_map>
#include <unordered_set>

namespace airgraph {

// What is known of all replay locks of the process.
struct ReplayLocks {
  std::mutex mutex;
  std::condition_variable given_back;
  std::unordered_set<ReplayLock*> all;
  // Which thread waits for which replay lock.
  std::unordered_map<uint64_t, ReplayLock*> waiting;
  // Threads that wait on `given_back`, those before a fork included.
  int sleepers = 0;
  // The thread that is about to fork, or 0.
  uint64_t forking = 0;

  static ReplayLocks& instance();
  static uint64_t this_thread();

  // Whether a thread holds any.
  bool has_one(uint64_t thread) const {
    return std::any_of(all.begin(), all.end(),
                       [thread](const ReplayLock* replay_lock) { return replay_lock->owner_ == thread; });
  }
  bool others_have_one(uint64_t thread) const {
    return std::any_of(all.begin(), all.end(), [thread](const ReplayLock* replay_lock) {
      return replay_lock->owner_ != 0 && replay_lock->owner_ != thread;
    });
  }
  bool gate_is_shut_for(uint64_t thread) const { return forking != 0 && forking != thread && !has_one(thread); }

  bool would_deadlock(const ReplayLock* replay_lock, uint64_t me) const {
    while (replay_lock != nullptr && replay_lock->owner_ != 0) {
      if (replay_lock->owner_ == me) {
        return true;
      }
      const auto next = waiting.find(replay_lock->owner_);
      replay_lock = next == waiting.end() ? nullptr : next->second;
    }
    return false;
  }

  // After a fork: whoever held or awaited these is not here any more.
  void renew(uint64_t me) {
    new (&mutex) std::mutex();
    new (&given_back) std::condition_variable();
    waiting.clear();
    sleepers = 0;
    forking = 0;
    for (ReplayLock* replay_lock : all) {
      if (replay_lock->owner_ != me) {
        replay_lock->owner_ = 0;
      }
    }
  }

  static ReplayLock::Answer take(ReplayLock& replay_lock, uint64_t me) {
    replay_lock.owner_ = me;
    return ReplayLock::Answer::taken;
  }
};

ReplayLocks& ReplayLocks::instance() {
  // Never destroyed: threads may outlive what is static.
  static auto* locks = new ReplayLocks();
  return *locks;
}

uint64_t ReplayLocks::this_thread() {
  static std::atomic<uint64_t> last{0};
  thread_local const uint64_t id = ++last;
  return id;
}

ReplayLock::ReplayLock() {
  auto& locks = ReplayLocks::instance();
  const std::lock_guard lock(locks.mutex);
  locks.all.insert(this);
}

ReplayLock::~ReplayLock() {
  auto& locks = ReplayLocks::instance();
  const std::lock_guard lock(locks.mutex);
  locks.all.erase(this);
}

ReplayLock::Answer ReplayLock::take() {
  auto& locks = ReplayLocks::instance();
  const uint64_t me = ReplayLocks::this_thread();
  const std::lock_guard lock(locks.mutex);
  if (owner_ == 0 && locks.forking == 0) {
    return ReplayLocks::take(*this, me);
  }
  if (owner_ == me) {
    return Answer::nested;
  }
  return owner_ == 0 && !locks.gate_is_shut_for(me) ? ReplayLocks::take(*this, me) : Answer::busy;
}

ReplayLock::Answer ReplayLock::wait(std::chrono::milliseconds moment) {
  auto& locks = ReplayLocks::instance();
  const uint64_t me = ReplayLocks::this_thread();
  std::unique_lock lock(locks.mutex);
  if (locks.would_deadlock(this, me)) {
    return Answer::deadlock;
  }
  locks.waiting[me] = this;
  ++locks.sleepers;
  const bool free = locks.given_back.wait_for(lock, moment, [&] { return owner_ == 0 && !locks.gate_is_shut_for(me); });
  --locks.sleepers;
  locks.waiting.erase(me);
  return free ? ReplayLocks::take(*this, me) : Answer::busy;
}

void ReplayLock::give_back() {
  auto& locks = ReplayLocks::instance();
  bool awaited = false;
  {
    const std::lock_guard lock(locks.mutex);
    owner_ = 0;
    awaited = locks.sleepers > 0;
  }
  if (awaited) {
    locks.given_back.notify_all();
  }
}

bool ReplayLock::is_taken() const {
  const std::lock_guard lock(ReplayLocks::instance().mutex);
  return owner_ != 0;
}

void hold_replay_locks_before_fork(std::chrono::milliseconds limit) {
  auto& locks = ReplayLocks::instance();
  const uint64_t me = ReplayLocks::this_thread();
  std::unique_lock lock(locks.mutex);
  locks.forking = me;
  ++locks.sleepers;
  locks.given_back.wait_for(lock, limit, [&] { return !locks.others_have_one(me); });
  --locks.sleepers;
}

void resume_replay_locks_in_parent() {
  auto& locks = ReplayLocks::instance();
  {
    const std::lock_guard lock(locks.mutex);
    locks.forking = 0;
  }
  locks.given_back.notify_all();
}

void resume_replay_locks_in_child() { ReplayLocks::instance().renew(ReplayLocks::this_thread()); }

}  // namespace airgraph
