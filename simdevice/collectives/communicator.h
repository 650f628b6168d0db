// SPDX-License-Identifier: Apache-2.0
// Ranks that communicate: processes of one machine, each with a simulated device.
#pragma once

#include <mutex>
#include <string>
#include <vector>

#include "simdevice/collectives/mailboxes.h"
#include "simdevice/collectives/numbers.h"

namespace simdevice {

// What a collective is of. All ranks must call it alike.
struct Numbers {
  std::size_t count;
  NumberType type;

  std::size_t nbytes() const noexcept { return count * size_of(type); }
};

// Every collective is done by the time it returns: it belongs into the work of a stream. Pointers are the host's. What
// is sent and what is received may be the same memory wherever NCCL allows that. Each rank reduces in the order of
// ranks, so that all get the same bits.
class Communicator {
 public:
  static std::string new_name() { return Mailboxes::new_name(); }
  Communicator(const std::string& name, int ranks, int rank, int place)
      : mailboxes_(name, ranks, rank, place), ranks_(ranks), rank_(rank) {}

  int ranks() const noexcept { return ranks_; }
  int rank() const noexcept { return rank_; }
  void abort() noexcept { mailboxes_.abort(); }

  void all_reduce(const void* sent, void* received, Numbers numbers, Reduction reduction);
  void reduce(const void* sent, void* received, Numbers numbers, Reduction reduction, int root);
  void broadcast(const void* sent, void* received, Numbers numbers, int root);
  // `numbers` is what each rank gives, or gets.
  void all_gather(const void* sent, void* received, Numbers numbers);
  void reduce_scatter(const void* sent, void* received, Numbers numbers, Reduction reduction);
  void scatter(const void* sent, void* received, Numbers numbers, int root);
  void all_to_all(const void* sent, void* received, Numbers numbers);
  // Messages of any ranks to any, together. Their sizes must agree, and nothing else is asked.
  void point_to_point(std::vector<Outgoing> sent, std::vector<Incoming> received);
  void barrier();

 private:
  void exchange(const std::string& call, std::vector<Outgoing> sent, std::vector<Incoming> received);
  // What each rank sent to this one, reduced.
  void reduce_into(void* received, const std::vector<std::vector<std::byte>>& parts, Numbers numbers,
                   Reduction reduction) const;
  std::vector<std::vector<std::byte>> room_for_all(std::size_t nbytes) const;

  Mailboxes mailboxes_;
  std::mutex mutex_;  // one exchange at a time
  const int ranks_;
  const int rank_;
};

}  // namespace simdevice
