// SPDX-License-Identifier: Apache-2.0
#include "simdevice/collectives/communicator.h"

#include <algorithm>
#include <cstring>

namespace simdevice {
namespace {

std::string described(const char* name, Numbers numbers) {
  return std::string(name) + " of " + std::to_string(numbers.count) + " " + name_of(numbers.type);
}

std::string described(const char* name, Numbers numbers, Reduction reduction) {
  return described(name, numbers) + ", " + name_of(reduction);
}

const std::byte* at(const void* data, int number, std::size_t nbytes) {
  return static_cast<const std::byte*>(data) + static_cast<std::size_t>(number) * nbytes;
}

std::byte* at(void* data, int number, std::size_t nbytes) {
  return static_cast<std::byte*>(data) + static_cast<std::size_t>(number) * nbytes;
}

}  // namespace

void Communicator::exchange(const std::string& call, std::vector<Outgoing> sent, std::vector<Incoming> received) {
  std::lock_guard lock(mutex_);
  mailboxes_.exchange(call, std::move(sent), std::move(received));
}

std::vector<std::vector<std::byte>> Communicator::room_for_all(std::size_t nbytes) const {
  return std::vector<std::vector<std::byte>>(static_cast<std::size_t>(ranks_), std::vector<std::byte>(nbytes));
}

void Communicator::reduce_into(void* received, const std::vector<std::vector<std::byte>>& parts, Numbers numbers,
                               Reduction reduction) const {
  auto total = parts.front();
  for (std::size_t rank = 1; rank < parts.size(); ++rank) {
    simdevice::reduce(total.data(), parts[rank].data(), numbers.count, numbers.type, reduction);
  }
  if (reduction == Reduction::average) divide(total.data(), numbers.count, numbers.type, ranks_);
  if (!total.empty()) std::memcpy(received, total.data(), total.size());
}

void Communicator::all_reduce(const void* sent, void* received, Numbers numbers, Reduction reduction) {
  auto parts = room_for_all(numbers.nbytes());
  std::vector<Outgoing> out;
  std::vector<Incoming> in;
  for (int rank = 0; rank < ranks_; ++rank) {
    out.push_back({rank, sent, numbers.nbytes()});
    in.push_back({rank, parts[static_cast<std::size_t>(rank)].data(), numbers.nbytes()});
  }
  exchange(described("all_reduce", numbers, reduction), std::move(out), std::move(in));
  reduce_into(received, parts, numbers, reduction);
}

void Communicator::reduce(const void* sent, void* received, Numbers numbers, Reduction reduction, int root) {
  auto parts = room_for_all(rank_ == root ? numbers.nbytes() : 0);
  std::vector<Incoming> in;
  for (int rank = 0; rank < ranks_ && rank_ == root; ++rank) {
    in.push_back({rank, parts[static_cast<std::size_t>(rank)].data(), numbers.nbytes()});
  }
  exchange(described("reduce", numbers, reduction), {{root, sent, numbers.nbytes()}}, std::move(in));
  if (rank_ == root) reduce_into(received, parts, numbers, reduction);
}

void Communicator::broadcast(const void* sent, void* received, Numbers numbers, int root) {
  std::vector<Outgoing> out;
  std::vector<Incoming> in;
  for (int rank = 0; rank < ranks_ && rank_ == root; ++rank) {
    if (rank != root) out.push_back({rank, sent, numbers.nbytes()});
  }
  if (rank_ != root) in.push_back({root, received, numbers.nbytes()});
  exchange(described("broadcast", numbers), std::move(out), std::move(in));
  if (rank_ == root && numbers.count != 0) std::memmove(received, sent, numbers.nbytes());
}

void Communicator::all_gather(const void* sent, void* received, Numbers numbers) {
  const auto nbytes = numbers.nbytes();
  std::vector<Outgoing> out;
  std::vector<Incoming> in;
  for (int rank = 0; rank < ranks_; ++rank) {
    if (rank == rank_) continue;
    out.push_back({rank, sent, nbytes});
    in.push_back({rank, at(received, rank, nbytes), nbytes});
  }
  exchange(described("all_gather", numbers), std::move(out), std::move(in));
  if (nbytes != 0) std::memmove(at(received, rank_, nbytes), sent, nbytes);
}

void Communicator::reduce_scatter(const void* sent, void* received, Numbers numbers, Reduction reduction) {
  auto parts = room_for_all(numbers.nbytes());
  std::vector<Outgoing> out;
  std::vector<Incoming> in;
  for (int rank = 0; rank < ranks_; ++rank) {
    out.push_back({rank, at(sent, rank, numbers.nbytes()), numbers.nbytes()});
    in.push_back({rank, parts[static_cast<std::size_t>(rank)].data(), numbers.nbytes()});
  }
  exchange(described("reduce_scatter", numbers, reduction), std::move(out), std::move(in));
  reduce_into(received, parts, numbers, reduction);
}

void Communicator::scatter(const void* sent, void* received, Numbers numbers, int root) {
  std::vector<Outgoing> out;
  for (int rank = 0; rank < ranks_ && rank_ == root; ++rank) {
    out.push_back({rank, at(sent, rank, numbers.nbytes()), numbers.nbytes()});
  }
  exchange(described("scatter", numbers), std::move(out), {{root, received, numbers.nbytes()}});
}

void Communicator::all_to_all(const void* sent, void* received, Numbers numbers) {
  std::vector<Outgoing> out;
  std::vector<Incoming> in;
  for (int rank = 0; rank < ranks_; ++rank) {
    out.push_back({rank, at(sent, rank, numbers.nbytes()), numbers.nbytes()});
    in.push_back({rank, at(received, rank, numbers.nbytes()), numbers.nbytes()});
  }
  exchange(described("all_to_all", numbers), std::move(out), std::move(in));
}

void Communicator::point_to_point(std::vector<Outgoing> sent, std::vector<Incoming> received) {
  exchange("messages of ranks", std::move(sent), std::move(received));
}

void Communicator::barrier() {
  std::vector<Outgoing> out;
  std::vector<Incoming> in;
  for (int rank = 0; rank < ranks_; ++rank) {
    out.push_back({rank, nullptr, 0});
    in.push_back({rank, nullptr, 0});
  }
  exchange("barrier", std::move(out), std::move(in));
}

}  // namespace simdevice
