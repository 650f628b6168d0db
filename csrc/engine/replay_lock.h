// The right to run graphs of one pool: one thread has it at a time, and no graph runs within another's replay. Knows no
// Python; all state of all replay locks is guarded by one mutex, which is never held for long.
#pragma once

#include <chrono>
#include <cstdint>

namespace airgraph {

class ReplayLock {
 public:
  enum class Answer {
    taken,
    busy,     // another thread has it
    nested,   // this thread has it already
    deadlock  // the thread that has it waits, in the end, for this one
  };

  ReplayLock();
  ReplayLock(const ReplayLock&) = delete;
  ReplayLock& operator=(const ReplayLock&) = delete;
  ~ReplayLock();

  // Never waits.
  Answer take();

  // Waits for the replay lock, for a moment at most: `busy` if it did not come. Call without Python's lock.
  Answer wait(std::chrono::milliseconds moment);

  void give_back();

  bool is_taken() const;

 private:
  friend struct ReplayLocks;
  // Identifies a thread; 0: nobody has it.
  uint64_t owner_ = 0;
};

// Around fork(). Before: from now on threads that hold no replay lock get none, and this waits, up to `limit`, until
// the others have given theirs back. Call without Python's lock.
void hold_replay_locks_before_fork(std::chrono::milliseconds limit);
void resume_replay_locks_in_parent();
// ReplayLocks of threads that do not exist in the child are free.
void resume_replay_locks_in_child();

}  // namespace airgraph
