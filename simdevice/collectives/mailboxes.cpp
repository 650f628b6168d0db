// SPDX-License-Identifier: Apache-2.0
#include "simdevice/collectives/mailboxes.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <random>
#include <stdexcept>
#include <system_error>
#include <thread>

namespace simdevice {
namespace {

constexpr std::chrono::seconds patience{120};
constexpr std::chrono::milliseconds between_looks{100};
constexpr std::chrono::microseconds nap{20};
constexpr std::size_t payload_nbytes = std::size_t{1} << 16;
constexpr std::size_t call_nbytes = 112;

[[noreturn]] void throw_errno(const std::string& what) { throw std::system_error(errno, std::generic_category(), what); }

}  // namespace

// Of each rank. The memory is zero at first, and a process is never 0.
struct Mailboxes::Present {
  std::atomic<std::int32_t> process;
  std::int32_t place;
};

struct alignas(64) Mailboxes::Box {
  std::atomic<std::uint32_t> full;
  std::uint32_t nbytes;  // of this part of the message
  std::uint64_t total_nbytes;
  char call[call_nbytes];
  std::byte payload[payload_nbytes];
};

// Ends the wait for others where they will not come.
class Mailboxes::Waiting {
 public:
  Waiting(const Mailboxes& mailboxes, std::string call) : mailboxes_(mailboxes), call_(std::move(call)) {}

  void pause() {
    if (mailboxes_.aborted_.load(std::memory_order_relaxed)) throw std::runtime_error(call_ + " was aborted");
    const auto now = std::chrono::steady_clock::now();
    if (now >= next_look_) look(now);
    std::this_thread::sleep_for(nap);
  }

 private:
  void look(std::chrono::steady_clock::time_point now) {
    next_look_ = now + between_looks;
    for (int rank = 0; rank < mailboxes_.ranks_; ++rank) {
      const auto process = mailboxes_.present(rank).process.load(std::memory_order_acquire);
      if (process != 0 && kill(process, 0) != 0 && errno == ESRCH) {
        throw std::runtime_error(call_ + ": the process of rank " + std::to_string(rank) + " has ended");
      }
    }
    if (now >= until_) throw std::runtime_error(call_ + ": another rank did not come");
  }

  const Mailboxes& mailboxes_;
  const std::string call_;
  std::chrono::steady_clock::time_point next_look_ = std::chrono::steady_clock::now() + between_looks;
  const std::chrono::steady_clock::time_point until_ = std::chrono::steady_clock::now() + patience;
};

std::string Mailboxes::new_name() {
  std::random_device random;
  return "/simdevice-" + std::to_string(getpid()) + "-" + std::to_string(random()) + std::to_string(random());
}

Mailboxes::Mailboxes(const std::string& name, int ranks, int rank, int place)
    : ranks_(ranks),
      rank_(rank),
      nbytes_(static_cast<std::size_t>(ranks) * static_cast<std::size_t>(ranks) * sizeof(Box) +
              static_cast<std::size_t>(ranks) * sizeof(Present)) {
  static_assert(std::atomic<std::uint32_t>::is_always_lock_free);
  const int file = shm_open(name.c_str(), O_RDWR | O_CREAT, 0600);
  if (file < 0) throw_errno("shared memory of a communicator");
  // Every rank gives it the same size; no page exists before it is written.
  void* mapped = ftruncate(file, static_cast<off_t>(nbytes_)) == 0
                     ? mmap(nullptr, nbytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0)
                     : MAP_FAILED;
  const int error = errno;
  close(file);
  if (mapped == MAP_FAILED) {
    errno = error;
    throw_errno("shared memory of a communicator");
  }
  memory_ = static_cast<std::byte*>(mapped);
  try {
    meet(place);
  } catch (...) {
    munmap(memory_, nbytes_);
    shm_unlink(name.c_str());
    throw;
  }
  shm_unlink(name.c_str());
}

Mailboxes::~Mailboxes() { munmap(memory_, nbytes_); }

Mailboxes::Box& Mailboxes::box(int from, int to) const {
  return reinterpret_cast<Box*>(memory_)[from * ranks_ + to];
}

Mailboxes::Present& Mailboxes::present(int rank) const {
  return reinterpret_cast<Present*>(memory_ + static_cast<std::size_t>(ranks_ * ranks_) * sizeof(Box))[rank];
}

void Mailboxes::meet(int place) {
  present(rank_).place = place;
  present(rank_).process.store(getpid(), std::memory_order_release);
  Waiting waiting(*this, "making a communicator of " + std::to_string(ranks_) + " ranks");
  for (int rank = 0; rank < ranks_; ++rank) {
    while (present(rank).process.load(std::memory_order_acquire) == 0) waiting.pause();
  }
  for (int rank = 0; rank < ranks_; ++rank) {
    for (int other = 0; place >= 0 && other < rank; ++other) {
      if (present(other).place != present(rank).place) continue;
      throw std::invalid_argument("ranks " + std::to_string(other) + " and " + std::to_string(rank) +
                                  " both use device " + std::to_string(present(rank).place));
    }
  }
}

void Mailboxes::exchange(const std::string& call, std::vector<Outgoing> sent, std::vector<Incoming> received) {
  const auto noted = call.substr(0, call_nbytes - 1);
  // What a message has moved so far; an empty one is sent as one empty part.
  struct Progress {
    std::size_t moved = 0;
    bool done = false;
    void add(std::size_t part, std::size_t total) {
      moved += part;
      done = moved == total;
    }
  };
  std::vector<Progress> out(sent.size());
  std::vector<Progress> in(received.size());

  // Between two ranks messages go in the order in which they stand: a later one waits for those before it.
  const auto is_first = [](const auto& messages, const auto& progress, std::size_t i, auto peer) {
    for (std::size_t j = 0; j < i; ++j) {
      if (!progress[j].done && messages[j].*peer == messages[i].*peer) return false;
    }
    return !progress[i].done;
  };
  const auto send_part = [&](std::size_t i) {
    auto& to = box(rank_, sent[i].to);
    if (to.full.load(std::memory_order_acquire) != 0) return false;
    const auto part = std::min(payload_nbytes, sent[i].nbytes - out[i].moved);
    std::memcpy(to.call, noted.c_str(), noted.size() + 1);
    if (part != 0) std::memcpy(to.payload, static_cast<const std::byte*>(sent[i].data) + out[i].moved, part);
    to.nbytes = static_cast<std::uint32_t>(part);
    to.total_nbytes = sent[i].nbytes;
    to.full.store(1, std::memory_order_release);
    out[i].add(part, sent[i].nbytes);
    return true;
  };
  const auto receive_part = [&](std::size_t i) {
    auto& from = box(received[i].from, rank_);
    if (from.full.load(std::memory_order_acquire) == 0) return false;
    if (noted != from.call || from.total_nbytes != received[i].nbytes) {
      throw std::runtime_error("rank " + std::to_string(rank_) + " is in " + noted + " and expects " +
                               std::to_string(received[i].nbytes) + " bytes, rank " + std::to_string(received[i].from) +
                               " is in " + from.call + " and sends " + std::to_string(from.total_nbytes));
    }
    if (from.nbytes != 0) std::memcpy(static_cast<std::byte*>(received[i].data) + in[i].moved, from.payload, from.nbytes);
    const auto part = from.nbytes;
    from.full.store(0, std::memory_order_release);
    in[i].add(part, received[i].nbytes);
    return true;
  };

  Waiting waiting(*this, noted);
  for (;;) {
    bool moved = false;
    bool left = false;
    for (std::size_t i = 0; i < sent.size(); ++i) {
      if (is_first(sent, out, i, &Outgoing::to)) moved |= send_part(i);
      left |= !out[i].done;
    }
    for (std::size_t i = 0; i < received.size(); ++i) {
      if (is_first(received, in, i, &Incoming::from)) moved |= receive_part(i);
      left |= !in[i].done;
    }
    if (!left) return;
    if (!moved) waiting.pause();
  }
}

}  // namespace simdevice
