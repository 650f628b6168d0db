// SPDX-License-Identifier: Apache-2.0
// HCCL between processes of one machine. A collective is a kernel of its stream, which captures record: it meets the
// other ranks when it runs. What is not here does not exist, and torch_npu says so.
#include <hccl/hccl.h>

#include <chrono>
#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "device.h"
#include "simdevice/collectives/communicators.h"

namespace {

using simdevice::Communicator;
using simdevice::CommunicatorPtr;
using simdevice::Communicators;
using simdevice::Incoming;
using simdevice::Numbers;
using simdevice::NumberType;
using simdevice::Outgoing;
using simdevice::Reduction;

HcclResult fail(HcclResult result, std::string message) {
  simcann::fail(result, std::move(message));
  return result;
}

std::optional<NumberType> type_of(HcclDataType type) {
  switch (type) {
    case HCCL_DATA_TYPE_INT8: return NumberType::int8;
    case HCCL_DATA_TYPE_UINT8: return NumberType::uint8;
    case HCCL_DATA_TYPE_INT16: return NumberType::int16;
    case HCCL_DATA_TYPE_UINT16: return NumberType::uint16;
    case HCCL_DATA_TYPE_INT32: return NumberType::int32;
    case HCCL_DATA_TYPE_UINT32: return NumberType::uint32;
    case HCCL_DATA_TYPE_INT64: return NumberType::int64;
    case HCCL_DATA_TYPE_UINT64: return NumberType::uint64;
    case HCCL_DATA_TYPE_FP16: return NumberType::float16;
    case HCCL_DATA_TYPE_BFP16: return NumberType::bfloat16;
    case HCCL_DATA_TYPE_FP32: return NumberType::float32;
    case HCCL_DATA_TYPE_FP64: return NumberType::float64;
    default: return std::nullopt;
  }
}

std::optional<Reduction> reduction_of(HcclReduceOp op) {
  switch (op) {
    case HCCL_REDUCE_SUM: return Reduction::sum;
    case HCCL_REDUCE_PROD: return Reduction::product;
    case HCCL_REDUCE_MAX: return Reduction::maximum;
    case HCCL_REDUCE_MIN: return Reduction::minimum;
    default: return std::nullopt;
  }
}

// Where a kernel finds device memory. Asked for when it runs.
void* found(const void* device) { return device == nullptr ? nullptr : simcann::host_view(device); }

// A call of this communicator and type; `kernel` gets the communicator and the numbers.
template <typename Kernel>
HcclResult run(const char* name, HcclComm handle, uint64_t count, HcclDataType type, aclrtStream stream, Kernel kernel) {
  const auto communicator = Communicators::get().find(handle);
  if (!communicator) return fail(HCCL_E_PTR, std::string(name) + ": there is no such communicator");
  const auto known = type_of(type);
  if (!known) return fail(HCCL_E_NOT_SUPPORT, std::string(name) + ": type " + std::to_string(type) + " is not simulated");
  const Numbers numbers{count, *known};
  return simcann::launch(stream, name, [=] { kernel(*communicator, numbers); }) == 0 ? HCCL_SUCCESS : HCCL_E_RUNTIME;
}

template <typename Kernel>
HcclResult reduce(const char* name, HcclComm handle, uint64_t count, HcclDataType type, HcclReduceOp op,
                  aclrtStream stream, Kernel kernel) {
  const auto reduction = reduction_of(op);
  if (!reduction) return fail(HCCL_E_NOT_SUPPORT, std::string(name) + ": this reduction is not simulated");
  return run(name, handle, count, type, stream,
             [=](Communicator& ranks, Numbers numbers) { kernel(ranks, numbers, *reduction); });
}

// Messages whose places are device memory.
HcclResult send_messages(const char* name, HcclComm handle, aclrtStream stream, std::vector<Outgoing> sent,
                         std::vector<Incoming> received) {
  return run(name, handle, 0, HCCL_DATA_TYPE_INT8, stream, [=](Communicator& ranks, Numbers) {
    auto out = sent;
    auto in = received;
    for (auto& each : out) each.data = found(each.data);
    for (auto& each : in) each.data = found(each.data);
    ranks.point_to_point(std::move(out), std::move(in));
  });
}

std::size_t nbytes_of(uint64_t count, HcclDataType type) {
  const auto known = type_of(type);
  return known ? Numbers{count, *known}.nbytes() : 0;
}

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT HcclResult HcclSetConfig(HcclConfig, HcclConfigValue) { return HCCL_SUCCESS; }
EXPORT uint32_t HcclGetCommConfigCapability() { return HCCL_COMM_CONFIG_RESERVED; }

EXPORT const char* HcclGetErrorString(HcclResult code) { return code == HCCL_SUCCESS ? "no error" : "an error of HCCL"; }

EXPORT HcclResult HcclGetRootInfo(HcclRootInfo* info) {
  const auto name = Communicator::new_name();
  std::memset(info->internal, 0, sizeof(info->internal));
  std::memcpy(info->internal, name.data(), name.size());
  return HCCL_SUCCESS;
}

EXPORT HcclResult HcclCommInitRootInfo(uint32_t ranks, const HcclRootInfo* info, uint32_t rank, HcclComm* made) {
  if (rank >= ranks) return fail(HCCL_E_PARA, "rank " + std::to_string(rank) + " of " + std::to_string(ranks));
  try {
    // A process simulates one card, and that is number 0 in each.
    constexpr int any_place = -1;
    *made = Communicators::get().add(
        std::make_shared<Communicator>(info->internal, static_cast<int>(ranks), static_cast<int>(rank), any_place));
    return HCCL_SUCCESS;
  } catch (const std::exception& error) {
    return fail(HCCL_E_SYSCALL, error.what());
  }
}

EXPORT HcclResult HcclCommInitRootInfoConfig(uint32_t ranks, const HcclRootInfo* info, uint32_t rank,
                                             const HcclCommConfig*, HcclComm* made) {
  return HcclCommInitRootInfo(ranks, info, rank, made);
}

// Graphs that have captured its collectives may not outlive it, as with NCCL.
EXPORT HcclResult HcclCommDestroy(HcclComm communicator) {
  constexpr std::chrono::seconds patience{10};
  if (Communicators::get().end(communicator, patience)) return HCCL_SUCCESS;
  return fail(HCCL_E_INTERNAL, "a graph that has captured a collective of this communicator is still there");
}

EXPORT HcclResult HcclGetCommName(HcclComm communicator, char* name) {
  const auto text = "communicator " + std::to_string(reinterpret_cast<std::uintptr_t>(communicator));
  std::memcpy(name, text.c_str(), text.size() + 1);
  return HCCL_SUCCESS;
}

EXPORT HcclResult HcclGetCommAsyncError(HcclComm, HcclResult* error) {
  *error = HCCL_SUCCESS;
  return HCCL_SUCCESS;
}

EXPORT HcclResult HcclGetRankSize(HcclComm handle, uint32_t* count) {
  const auto communicator = Communicators::get().find(handle);
  if (!communicator) return HCCL_E_PTR;
  *count = static_cast<uint32_t>(communicator->ranks());
  return HCCL_SUCCESS;
}

EXPORT HcclResult HcclGetRankId(HcclComm handle, uint32_t* rank) {
  const auto communicator = Communicators::get().find(handle);
  if (!communicator) return HCCL_E_PTR;
  *rank = static_cast<uint32_t>(communicator->rank());
  return HCCL_SUCCESS;
}

EXPORT HcclResult HcclAllReduce(void* sent, void* received, uint64_t count, HcclDataType type, HcclReduceOp op,
                                HcclComm communicator, aclrtStream stream) {
  return reduce(__func__, communicator, count, type, op, stream, [=](Communicator& ranks, Numbers numbers, Reduction how) {
    ranks.all_reduce(found(sent), found(received), numbers, how);
  });
}

EXPORT HcclResult HcclReduce(void* sent, void* received, uint64_t count, HcclDataType type, HcclReduceOp op,
                             uint32_t root, HcclComm communicator, aclrtStream stream) {
  return reduce(__func__, communicator, count, type, op, stream, [=](Communicator& ranks, Numbers numbers, Reduction how) {
    ranks.reduce(found(sent), found(received), numbers, how, static_cast<int>(root));
  });
}

EXPORT HcclResult HcclReduceScatter(void* sent, void* received, uint64_t count, HcclDataType type, HcclReduceOp op,
                                    HcclComm communicator, aclrtStream stream) {
  return reduce(__func__, communicator, count, type, op, stream, [=](Communicator& ranks, Numbers numbers, Reduction how) {
    ranks.reduce_scatter(found(sent), found(received), numbers, how);
  });
}

EXPORT HcclResult HcclBroadcast(void* data, uint64_t count, HcclDataType type, uint32_t root, HcclComm communicator,
                                aclrtStream stream) {
  return run(__func__, communicator, count, type, stream, [=](Communicator& ranks, Numbers numbers) {
    ranks.broadcast(found(data), found(data), numbers, static_cast<int>(root));
  });
}

EXPORT HcclResult HcclAllGather(void* sent, void* received, uint64_t count, HcclDataType type, HcclComm communicator,
                                aclrtStream stream) {
  return run(__func__, communicator, count, type, stream, [=](Communicator& ranks, Numbers numbers) {
    ranks.all_gather(found(sent), found(received), numbers);
  });
}

EXPORT HcclResult HcclScatter(void* sent, void* received, uint64_t count, HcclDataType type, uint32_t root,
                              HcclComm communicator, aclrtStream stream) {
  return run(__func__, communicator, count, type, stream, [=](Communicator& ranks, Numbers numbers) {
    ranks.scatter(found(sent), found(received), numbers, static_cast<int>(root));
  });
}

EXPORT HcclResult HcclAlltoAll(const void* sent, uint64_t count, HcclDataType type, const void* received, uint64_t,
                               HcclDataType, HcclComm communicator, aclrtStream stream) {
  return run(__func__, communicator, count, type, stream, [=](Communicator& ranks, Numbers numbers) {
    ranks.all_to_all(found(sent), found(received), numbers);
  });
}

EXPORT HcclResult HcclAlltoAllV(const void* sent, const void* send_counts, const void* send_places,
                                HcclDataType send_type, const void* received, const void* receive_counts,
                                const void* receive_places, HcclDataType receive_type, HcclComm communicator,
                                aclrtStream stream) {
  uint32_t ranks = 0;
  if (HcclGetRankSize(communicator, &ranks) != HCCL_SUCCESS) return HCCL_E_PTR;
  const auto number = [](const void* numbers, uint32_t rank) { return static_cast<const uint64_t*>(numbers)[rank]; };
  std::vector<Outgoing> out;
  std::vector<Incoming> in;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    const auto* from = static_cast<const std::byte*>(sent) + nbytes_of(number(send_places, rank), send_type);
    // Written, though its type does not say so.
    auto* to = static_cast<std::byte*>(const_cast<void*>(received)) + nbytes_of(number(receive_places, rank), receive_type);
    out.push_back({static_cast<int>(rank), from, nbytes_of(number(send_counts, rank), send_type)});
    in.push_back({static_cast<int>(rank), to, nbytes_of(number(receive_counts, rank), receive_type)});
  }
  return send_messages(__func__, communicator, stream, std::move(out), std::move(in));
}

EXPORT HcclResult HcclSend(void* data, uint64_t count, HcclDataType type, uint32_t to, HcclComm communicator,
                           aclrtStream stream) {
  return send_messages(__func__, communicator, stream, {{static_cast<int>(to), data, nbytes_of(count, type)}}, {});
}

EXPORT HcclResult HcclRecv(void* data, uint64_t count, HcclDataType type, uint32_t from, HcclComm communicator,
                           aclrtStream stream) {
  return send_messages(__func__, communicator, stream, {}, {{static_cast<int>(from), data, nbytes_of(count, type)}});
}

EXPORT HcclResult HcclBatchSendRecv(HcclSendRecvItem* items, uint32_t count, HcclComm communicator,
                                    aclrtStream stream) {
  std::vector<Outgoing> out;
  std::vector<Incoming> in;
  for (uint32_t i = 0; i < count; ++i) {
    const auto& item = items[i];
    const auto nbytes = nbytes_of(item.count, item.dataType);
    const auto rank = static_cast<int>(item.remoteRank);
    if (item.sendRecvType == HCCL_SEND) {
      out.push_back({rank, item.buf, nbytes});
    } else {
      in.push_back({rank, item.buf, nbytes});
    }
  }
  return send_messages(__func__, communicator, stream, std::move(out), std::move(in));
}

EXPORT HcclResult HcclBarrier(HcclComm communicator, aclrtStream stream) {
  return run(__func__, communicator, 0, HCCL_DATA_TYPE_INT8, stream,
             [](Communicator& ranks, Numbers) { ranks.barrier(); });
}
