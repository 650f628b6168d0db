// SPDX-License-Identifier: Apache-2.0
#include "simdevice/fork.h"

#include <pthread.h>

#include <atomic>

namespace simdevice {
namespace {

std::atomic<bool> used{false};
std::atomic<bool> forked{false};

[[maybe_unused]] const int fork_handler = pthread_atfork(nullptr, nullptr, [] { forked.store(used.load()); });

}  // namespace

void note_use() noexcept { used.store(true, std::memory_order_relaxed); }

bool is_used() noexcept { return used.load(std::memory_order_relaxed); }

bool in_forked_child() noexcept { return forked.load(std::memory_order_relaxed); }

}  // namespace simdevice
