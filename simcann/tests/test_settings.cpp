// SPDX-License-Identifier: Apache-2.0
#include "settings.h"

#include <cstring>

#include "simdevice/tests/check.h"

using namespace simcann;

namespace {

const char* variable = "";
const char* value = nullptr;

Settings with(const char* name, const char* text) {
  variable = name;
  value = text;
  return read_settings([](const char* asked) { return std::strcmp(asked, variable) == 0 ? value : nullptr; });
}

}  // namespace

TEST(defaults) {
  const auto settings = with("", nullptr);
  CHECK(settings.kernels_enabled && settings.stream_limit == 1980 && settings.problem.empty());
  CHECK(settings.memory_nbytes == std::size_t{16} << 30);
}

TEST(values_are_read) {
  CHECK(!with("SIMCANN_KERNELS", "off").kernels_enabled);
  CHECK(with("SIMCANN_MEMORY", "512MiB").memory_nbytes == std::size_t{512} << 20);
  CHECK(with("SIMCANN_STREAMS", "8").stream_limit == 8);
  CHECK(with("SIMCANN_FAIL", "aclrtMalloc:3").failures == "aclrtMalloc:3");
  CHECK(with("SIMCANN_SOC", "Ascend910_9391").soc == "Ascend910_9391");
  CHECK(with("SIMCANN_SCHEDULE", "adversarial").schedule.order == Order::adversarial);
  const auto seeded = with("SIMCANN_SCHEDULE", "seed:7").schedule;
  CHECK(seeded.order == Order::seeded && seeded.seed == 7);
}

TEST(what_is_not_understood_is_named) {
  for (const auto& [name, text] : {std::pair{"SIMCANN_KERNELS", "maybe"}, {"SIMCANN_MEMORY", "16"},
                                   {"SIMCANN_MEMORY", "0GiB"}, {"SIMCANN_MEMORY", "2000000GiB"},
                                   {"SIMCANN_STREAMS", "-1"}, {"SIMCANN_SCHEDULE", "seed:x"}}) {
    const auto problem = with(name, text).problem;
    CHECK_CONTAINS(problem, name);
    CHECK_CONTAINS(problem, text);
  }
}
