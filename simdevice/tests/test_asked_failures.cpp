// SPDX-License-Identifier: Apache-2.0
#include "simdevice/asked_failures.h"

#include "check.h"

using namespace simdevice;

TEST(a_call_fails_once_after_those_that_succeed) {
  ask_for_failure("allocate", 2, 7);
  CHECK(asked_for("allocate") == 0 && asked_for("launch") == 0 && asked_for("allocate") == 0);
  CHECK(asked_for("allocate") == 7);
  CHECK(asked_for("allocate") == 0);
}

TEST(several_are_read_from_a_text) {
  ask_for_failures("begin:1,end");
  CHECK(asked_for("end") == usual_failure_of("end"));
  CHECK(asked_for("begin") == 0 && asked_for("begin") == usual_failure_of("begin"));
  ask_for_failures("");
  CHECK(ask_for_no_failure() == 0);
}

TEST(what_has_not_happened_is_counted_and_taken_back) {
  ask_for_failures("begin:1,end:5");
  CHECK(ask_for_no_failure() == 2);
  CHECK(asked_for("begin") == 0 && asked_for("begin") == 0);
}
