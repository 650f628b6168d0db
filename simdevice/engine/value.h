// SPDX-License-Identifier: Apache-2.0
// Waiting for a number in memory, and writing one: how external events and aclrtValueWait work.
#pragma once

#include <cstdint>
#include <functional>

namespace simdevice {

enum class ValueTest { at_least, equal, any_bit, nor };

// Whether `value` passes the test against `expected`. at_least compares the signed distance, so it survives a wrap.
bool passes(std::uint64_t value, ValueTest test, std::uint64_t expected) noexcept;

std::uint64_t read_value(const std::uint64_t* cell) noexcept;
void write_value(std::uint64_t* cell, std::uint64_t value);

// Returns when the cell passes the test or `give_up` says so. Sees writes by other means too, a little later.
void wait_for_value(const std::uint64_t* cell, ValueTest test, std::uint64_t expected,
                    const std::function<bool()>& give_up);

}  // namespace simdevice
