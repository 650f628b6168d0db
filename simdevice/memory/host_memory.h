// SPDX-License-Identifier: Apache-2.0
// Host memory the device knows of (pinned): ordinary memory, and a record of where it is.
#pragma once

#include <cstddef>
#include <map>
#include <shared_mutex>

#include "simdevice/engine/failure.h"

namespace simdevice {

class HostMemory {
 public:
  FailurePtr allocate(std::size_t nbytes, void** host);
  FailurePtr free(void* host);
  // Memory that somebody else allocated.
  FailurePtr add(void* host, std::size_t nbytes);
  FailurePtr remove(void* host);

  bool contains(const void* host) const;

 private:
  struct Range {
    std::size_t nbytes;
    bool owned;
  };

  mutable std::shared_mutex mutex_;
  std::map<const char*, Range> ranges_;
};

}  // namespace simdevice
