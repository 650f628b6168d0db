// Loops within one kernel whose parts the thread that replays shares with the workers of the team.
#pragma once

#include <atomic>
#include <cstdint>

#include "helped.h"

namespace airgraph {

// Of one tape. Parts are claimed one by one by whoever is free, so a worker that gets no processor costs the time of
// one part at most, and the calling thread alone comes to the end. There are two halves of them, and a thread claims
// those of one in their order before any of the other: parts that follow one another often read memory that does. Where
// the tape also has calls that ATen divides among threads of its own, the loops are theirs: these stay awake after such
// a call, and would keep the workers from their processors.
class ParallelLoop final : public Helped {
 public:
  // Computes one part, on a thread of that number among those that share the loop; the calling thread's is 0.
  using Body = void (*)(const void* context, size_t part, size_t thread) noexcept;
  static constexpr size_t kMostParts = 0xFFFF;

  explicit ParallelLoop(size_t threads);
  ~ParallelLoop() override;

  // From now on.
  void leave_to_atens_threads();

  // While it lives, the loops of this thread are those of a replay, which may have help. loop: null for none.
  class Replay {
   public:
    explicit Replay(ParallelLoop* loop);
    ~Replay();
    Replay(const Replay&) = delete;
    Replay& operator=(const Replay&) = delete;

   private:
    ParallelLoop* const before_;
  };

  // All parts, one thread's or several threads'; returns when they are done. part_ns: about how long one takes.
  static void run(size_t parts, size_t part_ns, Body body, const void* context);

  // How many loops were shared so far.
  size_t shared() const { return state_.load(std::memory_order_relaxed) >> kLoopShift; }

  // That may share the next loop of the calling thread.
  static size_t threads_of_next();

  bool help(size_t worker) override;
  void survive_fork() override;
  size_t threads() const override { return threads_; }

 private:
  // The loop, and how many parts of each half are left to be claimed: one word, so that who claims a part of a loop
  // that is over claims nothing.
  static constexpr int kHalfShift = 16;
  static constexpr int kLoopShift = 32;

  void publish(size_t parts, Body body, const void* context);
  // On the calling thread, until none is left.
  void take_parts();
  void share(size_t parts, bool is_worth_waking, Body body, const void* context);
  void share_among_atens(size_t parts, Body body, const void* context);
  static void run_in_region(void* loop);
  // From the workers, for the loop that is published; whether sleepers were woken.
  bool ask_for_help(size_t parts, bool is_worth_waking);
  // What came of having woken them.
  void note(bool found_help);
  // thread: among those that share the loop.
  bool claim(size_t thread, size_t& part);
  void wait_for_workers(size_t parts);

  const size_t threads_;
  bool is_atens_ = false;
  unsigned forks_ = 0;  // when the loops were left to ATen's threads
  // Of the thread that replays.
  uint64_t loops_ = 0;
  size_t own_ = 0;
  bool asked_ = false;  // for help, in this replay
  bool has_help_ = false;
  // How often in a row a worker that was woken came to nothing, and for how many loops none is woken therefore: the
  // other processors are taken.
  int in_vain_ = 0, loops_to_pass_ = 0;

  alignas(64) std::atomic<uint64_t> state_{0};
  std::atomic<Body> body_{nullptr};
  std::atomic<const void*> context_{nullptr};
  std::atomic<uint32_t> floats_{0};
  std::atomic<size_t> parts_{0};
  std::atomic<size_t> most_{0};              // threads
  alignas(64) std::atomic<size_t> done_{0};  // by workers
};

}  // namespace airgraph
