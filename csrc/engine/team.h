// The threads that run side streams and parts of loops: as many as those that live ask for, and none where none lives.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_set>
#include <vector>

namespace airgraph {

class Helped;

// One replay at a time has the team's help; another that begins meanwhile does its work alone. Workers spin for a short
// while after they found work, then sleep.
class Team {
 public:
  static Team& instance();

  void join(Helped& helped);
  // Returns when no worker looks at it any more.
  void leave(Helped& helped);

  // Lets the workers help, unless they have another replay to help with. Those that sleep do so only where replays
  // follow one another closely, less and less often while they find nothing to do, or when they are woken.
  bool offer(Helped& helped);
  // That replay is over.
  void done() { busy_.store(false, std::memory_order_release); }

  // How often this process, and those that it comes of, were forked since the first team.
  unsigned forks() const { return forks_; }

  bool has_sleepers() const { return sleepers_.load(std::memory_order_relaxed) != 0; }
  // Those that sleep of so many of the first workers.
  void wake(size_t most);

 private:
  using Clock = std::chrono::steady_clock;
  struct Worker {
    std::thread thread;
    bool sleeps = false;  // under the mutex
    alignas(64) std::atomic<Helped*> visited{nullptr};
  };

  Team();
  void work(Worker& self, size_t number);
  // Threads are as many as those ask for that are helped, less the one that replays. Under the mutex of the staff.
  void hire();
  void dismiss();
  void survive_fork();

  std::mutex staff_mutex_;  // who is hired and dismissed; taken before the other
  std::mutex mutex_;
  std::condition_variable wanted_;
  std::unordered_set<Helped*> helped_;
  std::vector<std::unique_ptr<Worker>> workers_;  // changed under both
  bool ends_ = false;
  unsigned forks_ = 0;
  std::atomic<size_t> sleepers_{0};
  // Wakes for closeness since a worker found something to do.
  std::atomic<unsigned> fruitless_{0};
  // The last replay that found sleepers, and the last that woke them for being close to it; of who is `busy_`.
  Clock::time_point last_missed_{}, last_woken_{};
  std::atomic<bool> understaffed_{false};
  alignas(64) std::atomic<bool> busy_{false};
  alignas(64) std::atomic<Helped*> offered_{nullptr};
};

}  // namespace airgraph
