// SPDX-License-Identifier: Apache-2.0
// Memory that the ranks of a communicator share on one machine: a mailbox from each rank to each.
#pragma once

#include <atomic>
#include <cstddef>
#include <string>
#include <vector>

namespace simdevice {

struct Outgoing {
  int to;
  const void* data;
  std::size_t nbytes;
};

struct Incoming {
  int from;
  void* data;
  std::size_t nbytes;
};

class Mailboxes {
 public:
  // A name that no other communicator of this machine has; short enough for NCCL's identifier.
  static std::string new_name();

  // Returns once all ranks have come; nothing is left in the file system then. Throws where one does not come, or
  // where two have the same `place` (a card, as NCCL refuses it; negative: any).
  Mailboxes(const std::string& name, int ranks, int rank, int place);
  ~Mailboxes();
  Mailboxes(const Mailboxes&) = delete;
  Mailboxes& operator=(const Mailboxes&) = delete;

  // Send and receive all of it, in whichever order others are ready; a message to this rank itself is one too. `call`
  // says what is sent: a rank that is sent something else throws, as do those that wait for a rank whose process has
  // ended, or for too long. One exchange at a time.
  void exchange(const std::string& call, std::vector<Outgoing> sent, std::vector<Incoming> received);
  // Lets the exchange under way, and all later ones, throw.
  void abort() noexcept { aborted_.store(true, std::memory_order_relaxed); }

 private:
  struct Present;
  struct Box;
  class Waiting;

  Present& present(int rank) const;
  Box& box(int from, int to) const;
  void meet(int place);

  const int ranks_;
  const int rank_;
  const std::size_t nbytes_;
  std::byte* memory_ = nullptr;
  std::atomic<bool> aborted_{false};
};

}  // namespace simdevice
