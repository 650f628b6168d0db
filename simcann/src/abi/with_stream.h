// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <acl/acl.h>

#include <type_traits>

#include "runtime.h"
#include "status.h"

namespace simcann {

// What the action says of a stream, which is a status or why there is none; an error where there is no such stream.
template <typename Action>
aclError with_stream(aclrtStream handle, Action&& action) {
  const auto stream = Runtime::get().stream(handle);
  if (!stream) return fail(no_such_stream(handle));
  if constexpr (std::is_same_v<decltype(action(stream)), FailurePtr>) {
    return fail(action(stream));
  } else {
    return action(stream);
  }
}

}  // namespace simcann
