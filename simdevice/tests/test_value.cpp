// SPDX-License-Identifier: Apache-2.0
#include "simdevice/engine/value.h"

#include "device.h"

using namespace simdevice;

TEST(tests_of_a_value) {
  CHECK(passes(3, ValueTest::at_least, 3) && passes(4, ValueTest::at_least, 3) && !passes(2, ValueTest::at_least, 3));
  CHECK(passes(0, ValueTest::at_least, ~std::uint64_t{0}));  // a counter that wrapped
  CHECK(passes(3, ValueTest::equal, 3) && !passes(4, ValueTest::equal, 3));
  CHECK(passes(6, ValueTest::any_bit, 2) && !passes(4, ValueTest::any_bit, 2));
  CHECK(passes(0, ValueTest::nor, 1) && !passes(~std::uint64_t{0}, ValueTest::nor, 0));
}

TEST(a_wait_ends_with_the_write) {
  std::uint64_t cell = 0;
  std::thread writer([&] {
    pause_ms(5);
    write_value(&cell, 1);
  });
  wait_for_value(&cell, ValueTest::equal, 1, [] { return false; });
  CHECK(read_value(&cell) == 1);
  writer.join();
}

TEST(a_wait_sees_a_write_that_did_not_announce_itself) {
  std::uint64_t cell = 0;
  std::thread writer([&] { __atomic_store_n(&cell, 7, __ATOMIC_RELEASE); });
  wait_for_value(&cell, ValueTest::equal, 7, [] { return false; });
  writer.join();
}

TEST(a_wait_can_be_given_up) {
  std::uint64_t cell = 0;
  std::atomic<bool> stop{false};
  std::thread waiter([&] { wait_for_value(&cell, ValueTest::equal, 1, [&] { return stop.load(); }); });
  pause_ms(3);
  stop = true;
  waiter.join();
}
