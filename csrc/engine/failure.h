// What a kernel threw, with where on the tape.
#pragma once

#include <c10/util/Exception.h>

#include <stdexcept>
#include <string>

namespace airgraph {

// A kernel threw; `index` is the call's position on the tape. What it threw is nested.
class ReplayFailure : public std::runtime_error {
 public:
  ReplayFailure(size_t index, const std::string& what) : std::runtime_error(what), index(index) {}
  size_t index;
};

// In a handler: throws what is handled as the failure of a call; what is no std::exception goes on as it is.
[[noreturn]] inline void throw_failure(size_t index) {
  try {
    throw;
  } catch (const c10::Error& error) {
    std::throw_with_nested(ReplayFailure(index, error.what_without_backtrace()));
  } catch (const std::exception& error) {
    std::throw_with_nested(ReplayFailure(index, error.what()));
  }
}

}  // namespace airgraph
