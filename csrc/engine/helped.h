// What the workers of a team help with.
#pragma once

#include <cstddef>

namespace airgraph {

class Helped {
 public:
  Helped() = default;
  Helped(const Helped&) = delete;
  Helped& operator=(const Helped&) = delete;
  virtual ~Helped() = default;

  // Does what is ready, on a worker; whether there was anything. Throws nothing.
  virtual bool help(size_t worker) = 0;

  // In the child of a fork, where there are no other threads any more.
  virtual void survive_fork() = 0;

  // That do it at most, the one that asks for help included.
  virtual size_t threads() const = 0;
};

}  // namespace airgraph
