// SPDX-License-Identifier: Apache-2.0
#include "memory/copy.h"

#include <cstring>
#include <sstream>

#include "runtime.h"

namespace simcann {
namespace {

enum class Place { host, device };

struct Sides {
  Place target;
  Place source;
};

Place place_of(const void* address) {
  return Runtime::get().memory.contains(address) ? Place::device : Place::host;
}

const char* name_of(Place place) { return place == Place::host ? "host" : "device"; }

bool sides_of(aclrtMemcpyKind kind, Sides* sides) {
  switch (kind) {
    case ACL_MEMCPY_HOST_TO_HOST:
      *sides = {Place::host, Place::host};
      return true;
    case ACL_MEMCPY_HOST_TO_DEVICE:
    case ACL_MEMCPY_HOST_TO_BUF_TO_DEVICE:
      *sides = {Place::device, Place::host};
      return true;
    case ACL_MEMCPY_DEVICE_TO_HOST:
      *sides = {Place::host, Place::device};
      return true;
    case ACL_MEMCPY_DEVICE_TO_DEVICE:
    case ACL_MEMCPY_INNER_DEVICE_TO_DEVICE:
    case ACL_MEMCPY_INTER_DEVICE_TO_DEVICE:
      *sides = {Place::device, Place::device};
      return true;
    case ACL_MEMCPY_DEFAULT:
      break;  // the addresses decide
  }
  return false;
}

FailurePtr check_side(const char* role, const void* address, Place expected) {
  const auto actual = place_of(address);
  if (actual == expected) return nullptr;
  std::ostringstream text;
  text << "the copy's " << role << " " << address << " is " << name_of(actual) << " memory, the copy kind says "
       << name_of(expected);
  return make_failure(ACL_ERROR_RT_PARAM_INVALID, text.str());
}

FailurePtr too_long(std::size_t nbytes, std::size_t target_nbytes) {
  return make_failure(ACL_ERROR_RT_PARAM_INVALID, "writing " + std::to_string(nbytes) + " bytes to a target of " +
                                                      std::to_string(target_nbytes));
}

bool is_pageable(const void* address) {
  return place_of(address) == Place::host && !Runtime::get().host_memory.contains(address);
}

void check_still_there(const void* address, std::size_t nbytes) {
  if (auto failure = Runtime::get().memory.check_range(address, nbytes)) throw DeviceFault(failure);
}

}  // namespace

FailurePtr plan_copy(void* target, std::size_t target_nbytes, const void* source, std::size_t nbytes,
                     aclrtMemcpyKind kind, Copy* copy) {
  if (nbytes > target_nbytes) return too_long(nbytes, target_nbytes);
  Sides sides{place_of(target), place_of(source)};
  if (sides_of(kind, &sides)) {
    if (auto failure = check_side("target", target, sides.target)) return failure;
    if (auto failure = check_side("source", source, sides.source)) return failure;
  }
  const auto& memory = Runtime::get().memory;
  *copy = {.target = target,
           .source = source,
           .nbytes = nbytes,
           .target_on_device = sides.target == Place::device,
           .source_on_device = sides.source == Place::device,
           .blocks_host = is_pageable(target) || is_pageable(source)};
  if (copy->target_on_device) {
    if (auto failure = memory.check_range(target, nbytes)) return failure;
  }
  if (copy->source_on_device) {
    if (auto failure = memory.check_range(source, nbytes)) return failure;
  }
  return nullptr;
}

void run_copy(const Copy& copy) {
  const auto& memory = Runtime::get().memory;
  void* target = copy.target;
  const void* source = copy.source;
  if (copy.target_on_device) {
    check_still_there(target, copy.nbytes);
    target = memory.host_view(target);
  }
  if (copy.source_on_device) {
    check_still_there(source, copy.nbytes);
    source = memory.host_view(source);
  }
  std::memmove(target, source, copy.nbytes);
}

FailurePtr check_fill(const void* target, std::size_t target_nbytes, std::size_t nbytes) {
  if (nbytes > target_nbytes) return too_long(nbytes, target_nbytes);
  return place_of(target) == Place::device ? Runtime::get().memory.check_range(target, nbytes) : nullptr;
}

void run_fill(void* target, int value, std::size_t nbytes) {
  if (place_of(target) == Place::device) {
    check_still_there(target, nbytes);
    target = Runtime::get().memory.host_view(target);
  }
  std::memset(target, value, nbytes);
}

}  // namespace simcann
