#include "turn.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <new>
#include <unordered_map>
#include <unordered_set>

namespace airgraph {

// What is known of all turns of the process.
struct Turns {
  std::mutex mutex;
  std::condition_variable given_back;
  std::unordered_set<Turn*> all;
  // Which thread waits for which turn.
  std::unordered_map<uint64_t, Turn*> waiting;
  // Threads that wait on `given_back`, those before a fork included.
  int sleepers = 0;
  // The thread that is about to fork, or 0.
  uint64_t forking = 0;

  static Turns& instance();
  static uint64_t this_thread();

  // Whether a thread has any turn.
  bool has_one(uint64_t thread) const {
    return std::any_of(all.begin(), all.end(), [thread](const Turn* turn) { return turn->owner_ == thread; });
  }
  bool others_have_one(uint64_t thread) const {
    return std::any_of(all.begin(), all.end(),
                       [thread](const Turn* turn) { return turn->owner_ != 0 && turn->owner_ != thread; });
  }
  bool gate_is_shut_for(uint64_t thread) const { return forking != 0 && forking != thread && !has_one(thread); }

  bool would_deadlock(const Turn* turn, uint64_t me) const {
    while (turn != nullptr && turn->owner_ != 0) {
      if (turn->owner_ == me) {
        return true;
      }
      const auto next = waiting.find(turn->owner_);
      turn = next == waiting.end() ? nullptr : next->second;
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
    for (Turn* turn : all) {
      if (turn->owner_ != me) {
        turn->owner_ = 0;
      }
    }
  }

  static Turn::Answer take(Turn& turn, uint64_t me) {
    turn.owner_ = me;
    return Turn::Answer::taken;
  }
};

Turns& Turns::instance() {
  // Never destroyed: threads may outlive what is static.
  static auto* turns = new Turns();
  return *turns;
}

uint64_t Turns::this_thread() {
  static std::atomic<uint64_t> last{0};
  thread_local const uint64_t id = ++last;
  return id;
}

Turn::Turn() {
  auto& turns = Turns::instance();
  const std::lock_guard lock(turns.mutex);
  turns.all.insert(this);
}

Turn::~Turn() {
  auto& turns = Turns::instance();
  const std::lock_guard lock(turns.mutex);
  turns.all.erase(this);
}

Turn::Answer Turn::take() {
  auto& turns = Turns::instance();
  const uint64_t me = Turns::this_thread();
  const std::lock_guard lock(turns.mutex);
  if (owner_ == 0 && turns.forking == 0) {
    return Turns::take(*this, me);
  }
  if (owner_ == me) {
    return Answer::nested;
  }
  return owner_ == 0 && !turns.gate_is_shut_for(me) ? Turns::take(*this, me) : Answer::busy;
}

Turn::Answer Turn::wait(std::chrono::milliseconds moment) {
  auto& turns = Turns::instance();
  const uint64_t me = Turns::this_thread();
  std::unique_lock lock(turns.mutex);
  if (turns.would_deadlock(this, me)) {
    return Answer::deadlock;
  }
  turns.waiting[me] = this;
  ++turns.sleepers;
  const bool free = turns.given_back.wait_for(
      lock, moment, [&] { return owner_ == 0 && !turns.gate_is_shut_for(me); });
  --turns.sleepers;
  turns.waiting.erase(me);
  return free ? Turns::take(*this, me) : Answer::busy;
}

void Turn::give_back() {
  auto& turns = Turns::instance();
  bool awaited = false;
  {
    const std::lock_guard lock(turns.mutex);
    owner_ = 0;
    awaited = turns.sleepers > 0;
  }
  if (awaited) {
    turns.given_back.notify_all();
  }
}

bool Turn::is_taken() const {
  const std::lock_guard lock(Turns::instance().mutex);
  return owner_ != 0;
}

void hold_turns_before_fork(std::chrono::milliseconds limit) {
  auto& turns = Turns::instance();
  const uint64_t me = Turns::this_thread();
  std::unique_lock lock(turns.mutex);
  turns.forking = me;
  ++turns.sleepers;
  turns.given_back.wait_for(lock, limit, [&] { return !turns.others_have_one(me); });
  --turns.sleepers;
}

void resume_turns_in_parent() {
  auto& turns = Turns::instance();
  {
    const std::lock_guard lock(turns.mutex);
    turns.forking = 0;
  }
  turns.given_back.notify_all();
}

void resume_turns_in_child() { Turns::instance().renew(Turns::this_thread()); }

}  // namespace airgraph
