// SPDX-License-Identifier: Apache-2.0
// NCCL between processes of one machine. A collective is a kernel of its stream, which captures record: it meets the
// other ranks when it runs. Those of one communicator run as they were called, whichever streams they are on. What is
// not here (splitting, windows, scaling, products by a factor) says so.
#include <chrono>
#include <cstddef>
#include <cstring>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "device.h"
#include "export.h"
#include "simdevice/collectives/communicators.h"

// Of libcudart.
extern "C" {
int cudaGetDevice(int* device);
int cudaEventCreateWithFlags(void** event, unsigned int flags);
int cudaEventDestroy(void* event);
int cudaEventRecord(void* event, void* stream);
int cudaStreamWaitEvent(void* stream, void* event, unsigned int flags);
int cudaStreamGetCaptureInfo(void* stream, int* status, unsigned long long* id, void** graph, void*** dependencies,
                             void** edges, std::size_t* count);
}

namespace {

using simdevice::Communicator;
using simdevice::CommunicatorPtr;
using simdevice::Communicators;
using simdevice::Incoming;
using simdevice::Numbers;
using simdevice::NumberType;
using simdevice::Outgoing;
using simdevice::Reduction;

enum Result {
  success = 0,
  unhandled_cuda_error = 1,
  system_error = 2,
  invalid_argument = 4,
  invalid_usage = 5,
};

struct UniqueId {
  char internal[128];
};

thread_local std::string last_error;

int fail(Result result, std::string message) {
  last_error = std::move(message);
  return result;
}

std::optional<NumberType> type_of(int type) {
  constexpr NumberType types[] = {NumberType::int8,    NumberType::uint8,   NumberType::int32,   NumberType::uint32,
                                  NumberType::int64,   NumberType::uint64,  NumberType::float16, NumberType::float32,
                                  NumberType::float64, NumberType::bfloat16};
  if (type < 0 || type >= static_cast<int>(std::size(types))) return std::nullopt;
  return types[type];
}

// Numbers of 8 bits that no arithmetic here knows are only moved.
std::optional<NumberType> moved_type_of(int type) {
  constexpr int float8_e4m3 = 10, float8_e5m2 = 11;
  return type == float8_e4m3 || type == float8_e5m2 ? NumberType::uint8 : type_of(type);
}

std::optional<Reduction> reduction_of(int op) {
  constexpr Reduction reductions[] = {Reduction::sum, Reduction::product, Reduction::maximum, Reduction::minimum,
                                      Reduction::average};
  if (op < 0 || op >= static_cast<int>(std::size(reductions))) return std::nullopt;
  return reductions[op];
}

// Where a kernel finds [device, device + nbytes). Asked for when it runs.
void* found(const void* device, std::size_t nbytes) {
  if (nbytes == 0) return nullptr;
  if (!simcuda::is_allocated(device, nbytes)) throw std::runtime_error("it touches memory that is not allocated");
  return simcuda::host_view(device);
}

// Between ncclGroupStart and ncclGroupEnd calls are noted. Messages of a group are one kernel: each may wait for any
// other.
struct Messages {
  std::vector<Outgoing> sent;
  std::vector<Incoming> received;
};
using Place = std::pair<CommunicatorPtr, void*>;  // and its stream

struct Group {
  int depth = 0;
  std::vector<std::function<int()>> calls;
  std::map<Place, Messages> messages;
};
thread_local Group group;

// A communicator's work waits for what it was called for before, on whichever stream: outside of captures, and within
// one. NCCL orders replays and calls, too; PyTorch has them in order already.
class Order {
 public:
  static Order& get() {
    static auto& order = *new Order;
    return order;
  }

  int launch(const Place& place, const char* name, std::function<void()> kernel) {
    const auto& [communicator, stream] = place;
    std::lock_guard lock(mutex_);
    constexpr int active = 1;
    int status = 0;
    unsigned long long capture = 0;
    int error = cudaStreamGetCaptureInfo(stream, &status, &capture, nullptr, nullptr, nullptr, nullptr);
    if (status != active) capture = 0;
    auto& last = last_[{communicator.get(), capture != 0}];
    if (error == 0 && last.event == nullptr) error = cudaEventCreateWithFlags(&last.event, disable_timing);
    if (error == 0 && last.is_recorded && last.capture == capture) error = cudaStreamWaitEvent(stream, last.event, 0);
    if (error == 0) error = simcuda::launch(stream, name, std::move(kernel));
    if (error == 0) error = cudaEventRecord(last.event, stream);
    last.is_recorded = error == 0;
    last.capture = capture;
    return error == 0 ? success : fail(unhandled_cuda_error, std::string(name) + " cannot be queued on its stream");
  }

  void forget(const void* communicator) {
    std::lock_guard lock(mutex_);
    for (const bool captured : {false, true}) {
      const auto it = last_.find({communicator, captured});
      if (it == last_.end()) continue;
      if (it->second.event != nullptr) cudaEventDestroy(it->second.event);
      last_.erase(it);
    }
  }

 private:
  static constexpr unsigned int disable_timing = 2;
  struct Last {
    void* event = nullptr;
    bool is_recorded = false;
    unsigned long long capture = 0;  // 0: none
  };
  std::mutex mutex_;
  std::map<std::pair<const void*, bool>, Last> last_;  // the second: whether in a capture
};

int call(const Place& place, const char* name, std::function<void()> kernel) {
  if (group.depth == 0) return Order::get().launch(place, name, std::move(kernel));
  group.calls.push_back([=] { return Order::get().launch(place, name, kernel); });
  return success;
}

int send_messages(const Place& place, Messages messages) {
  return Order::get().launch(place, "ncclSendRecv", [communicator = place.first, messages = std::move(messages)] {
    auto [sent, received] = messages;
    for (auto& each : sent) each.data = found(each.data, each.nbytes);
    for (auto& each : received) each.data = found(each.data, each.nbytes);
    communicator->point_to_point(std::move(sent), std::move(received));
  });
}

int end_group() {
  int result = success;
  for (auto& each : std::exchange(group.calls, {})) {
    if (const int failed = each()) result = failed;
  }
  for (auto& [place, messages] : std::exchange(group.messages, {})) {
    if (const int failed = send_messages(place, std::move(messages))) result = failed;
  }
  return result;
}

// A collective on what is at `sent` and goes to `received`: so many of its numbers for each rank.
struct Collective {
  const char* name;
  const void* sent;
  void* received;
  std::size_t count;
  int type;
  void* communicator;
  void* stream;
};

// `action` gets the communicator, where to read, where to write, and the numbers. `sends` and `receives` are how many
// times the numbers are there.
template <typename Action>
int run(const Collective& of, std::optional<NumberType> type, int sends, int receives, Action action) {
  const auto communicator = Communicators::get().find(of.communicator);
  if (!communicator) return fail(invalid_argument, std::string(of.name) + ": there is no such communicator");
  if (!type) return fail(invalid_argument, std::string(of.name) + ": type " + std::to_string(of.type) + " is not simulated");
  const Numbers numbers{of.count, *type};
  return call({communicator, of.stream}, of.name, [=] {
    const auto* from = found(of.sent, numbers.nbytes() * static_cast<std::size_t>(sends));
    auto* to = found(of.received, numbers.nbytes() * static_cast<std::size_t>(receives));
    action(*communicator, from, to, numbers);
  });
}

template <typename Action>
int move(const Collective& of, int sends, int receives, Action action) {
  return run(of, moved_type_of(of.type), sends, receives, std::move(action));
}

template <typename Action>
int reduce(const Collective& of, int op, int sends, int receives, Action action) {
  const auto reduction = reduction_of(op);
  if (!reduction) return fail(invalid_argument, std::string(of.name) + ": reduction " + std::to_string(op) + " is not simulated");
  return run(of, type_of(of.type), sends, receives, [=](auto& communicator, const void* from, void* to, Numbers numbers) {
    action(communicator, from, to, numbers, *reduction);
  });
}

int ranks_of(void* handle) {
  const auto communicator = Communicators::get().find(handle);
  return communicator ? communicator->ranks() : 0;
}

bool is_rank(void* handle, int rank) {
  const auto communicator = Communicators::get().find(handle);
  return communicator && communicator->rank() == rank;
}

}  // namespace

extern "C" {

SIMCUDA_EXPORT int ncclGetVersion(int* version) {
  *version = 22800;
  return success;
}

SIMCUDA_EXPORT const char* ncclGetErrorString(int result) {
  constexpr const char* texts[] = {"no error",         "unhandled cuda error", "unhandled system error", "internal error",
                                   "invalid argument", "invalid usage",        "remote process exited or there was a network error",
                                   "NCCL operation in progress"};
  return result >= 0 && result < static_cast<int>(std::size(texts)) ? texts[result] : "unknown result code";
}
SIMCUDA_EXPORT const char* ncclGetLastError(void*) { return last_error.c_str(); }

SIMCUDA_EXPORT int ncclGetUniqueId(UniqueId* id) {
  const auto name = Communicator::new_name();
  std::memset(id->internal, 0, sizeof(id->internal));
  std::memcpy(id->internal, name.data(), name.size());
  return success;
}

SIMCUDA_EXPORT int ncclCommInitRank(void** made, int ranks, UniqueId id, int rank) {
  if (rank < 0 || rank >= ranks) return fail(invalid_argument, "rank " + std::to_string(rank) + " of " + std::to_string(ranks));
  int device = 0;
  if (cudaGetDevice(&device) != 0) return fail(unhandled_cuda_error, "there is no current device");
  try {
    *made = Communicators::get().add(std::make_shared<Communicator>(id.internal, ranks, rank, device));
    return success;
  } catch (const std::invalid_argument& error) {
    return fail(invalid_usage, std::string("Duplicate GPU detected: ") + error.what());
  } catch (const std::exception& error) {
    return fail(system_error, error.what());
  }
}

SIMCUDA_EXPORT int ncclCommInitRankConfig(void** made, int ranks, UniqueId id, int rank, void*) {
  return ncclCommInitRank(made, ranks, id, rank);
}

SIMCUDA_EXPORT int ncclCommFinalize(void*) { return success; }
// From 2.26 on NCCL waits here until no graph is left that has captured a collective of it: for ever, if need be.
SIMCUDA_EXPORT int ncclCommDestroy(void* communicator) {
  constexpr std::chrono::seconds patience{10};
  Order::get().forget(communicator);
  if (Communicators::get().end(communicator, patience)) return success;
  return fail(invalid_usage, "a graph that has captured a collective of this communicator is still there: NCCL would "
                             "wait for its end for ever");
}
SIMCUDA_EXPORT int ncclCommAbort(void* handle) {
  if (const auto communicator = Communicators::get().find(handle)) communicator->abort();
  return ncclCommDestroy(handle);
}

SIMCUDA_EXPORT int ncclCommCount(void* communicator, int* count) {
  *count = ranks_of(communicator);
  return success;
}
SIMCUDA_EXPORT int ncclCommUserRank(void* handle, int* rank) {
  const auto communicator = Communicators::get().find(handle);
  if (!communicator) return fail(invalid_argument, "there is no such communicator");
  *rank = communicator->rank();
  return success;
}
SIMCUDA_EXPORT int ncclCommGetAsyncError(void*, int* result) {
  *result = success;
  return success;
}

SIMCUDA_EXPORT int ncclCommSplit(void*, int, int, void**, void*) {
  return fail(invalid_usage, "ncclCommSplit is not simulated: make groups without a device_id");
}

SIMCUDA_EXPORT int ncclGroupStart() {
  ++group.depth;
  return success;
}
SIMCUDA_EXPORT int ncclGroupEnd() {
  if (group.depth == 0) return fail(invalid_usage, "ncclGroupEnd without ncclGroupStart");
  return --group.depth == 0 ? end_group() : success;
}

SIMCUDA_EXPORT int ncclAllReduce(const void* sent, void* received, size_t count, int type, int op, void* communicator, void* stream) {
  return reduce({__func__, sent, received, count, type, communicator, stream}, op, 1, 1,
                [](Communicator& ranks, const void* from, void* to, Numbers numbers, Reduction reduction) {
                  ranks.all_reduce(from, to, numbers, reduction);
                });
}

SIMCUDA_EXPORT int ncclReduce(const void* sent, void* received, size_t count, int type, int op, int root, void* communicator,
                              void* stream) {
  // Nothing is received elsewhere.
  return reduce({__func__, sent, received, count, type, communicator, stream}, op, 1, is_rank(communicator, root),
                [=](Communicator& ranks, const void* from, void* to, Numbers numbers, Reduction reduction) {
                  ranks.reduce(from, to, numbers, reduction, root);
                });
}

SIMCUDA_EXPORT int ncclReduceScatter(const void* sent, void* received, size_t count, int type, int op, void* communicator,
                                     void* stream) {
  return reduce({__func__, sent, received, count, type, communicator, stream}, op, ranks_of(communicator), 1,
                [](Communicator& ranks, const void* from, void* to, Numbers numbers, Reduction reduction) {
                  ranks.reduce_scatter(from, to, numbers, reduction);
                });
}

SIMCUDA_EXPORT int ncclAllGather(const void* sent, void* received, size_t count, int type, void* communicator, void* stream) {
  return move({__func__, sent, received, count, type, communicator, stream}, 1, ranks_of(communicator),
              [](Communicator& ranks, const void* from, void* to, Numbers numbers) { ranks.all_gather(from, to, numbers); });
}

SIMCUDA_EXPORT int ncclBroadcast(const void* sent, void* received, size_t count, int type, int root, void* communicator,
                                 void* stream) {
  return move({__func__, sent, received, count, type, communicator, stream}, is_rank(communicator, root), 1,
              [=](Communicator& ranks, const void* from, void* to, Numbers numbers) {
                ranks.broadcast(from, to, numbers, root);
              });
}

SIMCUDA_EXPORT int ncclBcast(void* data, size_t count, int type, int root, void* communicator, void* stream) {
  return ncclBroadcast(data, data, count, type, root, communicator, stream);
}

SIMCUDA_EXPORT int ncclAlltoAll(const void* sent, void* received, size_t count, int type, void* communicator, void* stream) {
  const int ranks = ranks_of(communicator);
  return move({__func__, sent, received, count, type, communicator, stream}, ranks, ranks,
              [](Communicator& all, const void* from, void* to, Numbers numbers) { all.all_to_all(from, to, numbers); });
}

SIMCUDA_EXPORT int ncclSend(const void* sent, size_t count, int type, int to, void* handle, void* stream) {
  const auto communicator = Communicators::get().find(handle);
  const auto known = moved_type_of(type);
  if (!communicator || !known) return fail(invalid_argument, "ncclSend: no such communicator, or type");
  ncclGroupStart();
  group.messages[{communicator, stream}].sent.push_back({to, sent, Numbers{count, *known}.nbytes()});
  return ncclGroupEnd();
}

SIMCUDA_EXPORT int ncclRecv(void* received, size_t count, int type, int from, void* handle, void* stream) {
  const auto communicator = Communicators::get().find(handle);
  const auto known = moved_type_of(type);
  if (!communicator || !known) return fail(invalid_argument, "ncclRecv: no such communicator, or type");
  ncclGroupStart();
  group.messages[{communicator, stream}].received.push_back({from, received, Numbers{count, *known}.nbytes()});
  return ncclGroupEnd();
}

}  // extern "C"
