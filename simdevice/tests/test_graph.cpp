// SPDX-License-Identifier: Apache-2.0
#include <set>
#include <stdexcept>
#include <vector>

#include "device.h"

using namespace simdevice;

namespace {

const Schedule schedules[] = {{}, {Order::adversarial, 0}, {Order::seeded, 3}};

}  // namespace

// Every lane adds to numbers of its own; a fan-out and a fan-in order them. No atomics: ThreadSanitizer sees a wait
// that a replay did not respect.
TEST(waits_and_lane_order_hold_under_every_schedule) {
  for (const auto schedule : schedules) {
    TestDevice device(schedule);
    constexpr std::size_t width = 4;
    const auto origin = device.stream();
    const auto fork = new_event();
    int input = 0;
    int parts[width] = {};
    int output = 0;
    GraphPtr graph;
    CHECK(!device.captures.begin(origin, CaptureMode::global, &graph));
    CHECK(!device.launch(origin, [&] { ++input; }));
    CHECK(!device.record(origin, fork));
    std::vector<EventPtr> ends;
    for (std::size_t i = 0; i < width; ++i) {
      const auto side = device.stream();
      CHECK(!device.captures.wait(side, fork));
      CHECK(!device.launch(side, [&parts, &input, i] { parts[i] = input; }));
      CHECK(!device.launch(side, [&parts, i] { parts[i] *= static_cast<int>(i) + 1; }));
      ends.push_back(new_event());
      CHECK(!device.record(side, ends.back()));
    }
    for (const auto& end : ends) CHECK(!device.captures.wait(origin, end));
    CHECK(!device.launch(origin, [&] {
      output = 0;
      for (const int part : parts) output += part;
    }));
    CHECK(!device.captures.end(origin, &graph));
    CHECK(graph->lane_count() == width + 1);
    for (int i = 1; i <= 50; ++i) {
      CHECK(!device.run(graph));
      CHECK(output == i * 10);
    }
  }
}

TEST(lanes_run_beside_each_other) {
  TestDevice device;
  const auto origin = device.stream();
  const auto side = device.stream();
  const auto fork = new_event();
  const auto joined = new_event();
  std::atomic<bool> met{false};
  GraphPtr graph;
  CHECK(!device.captures.begin(origin, CaptureMode::global, &graph));
  CHECK(!device.record(origin, fork));
  CHECK(!device.captures.wait(side, fork));
  CHECK(!device.launch(origin, [&] { while (!met) std::this_thread::yield(); }));
  CHECK(!device.launch(side, [&] { met = true; }));
  CHECK(!device.record(side, joined));
  CHECK(!device.captures.wait(origin, joined));
  CHECK(!device.captures.end(origin, &graph));
  for (int i = 0; i < 20; ++i) {
    met = false;
    CHECK(!device.run(graph));
  }
}

TEST(a_failing_kernel_is_named_and_ends_the_replay) {
  for (const auto schedule : schedules) {
    TestDevice device(schedule);
    const auto origin = device.stream();
    const auto side = device.stream();
    const auto fork = new_event();
    const auto joined = new_event();
    bool ran = false;
    bool broken = true;
    GraphPtr graph;
    CHECK(!device.captures.begin(origin, CaptureMode::global, &graph));
    CHECK(!device.record(origin, fork));
    CHECK(!device.captures.wait(side, fork));
    CHECK(!device.launch(side, [&] { if (broken) throw std::runtime_error("no"); }, "aclnnBroken"));
    CHECK(!device.record(side, joined));
    CHECK(!device.captures.wait(origin, joined));
    CHECK(!device.launch(origin, [&] { ran = true; }));
    CHECK(!device.captures.end(origin, &graph));
    const auto failure = device.run(graph);
    CHECK(failure->status == status_of(Fault::kernel_failed) && !ran);
    CHECK_CONTAINS(failure->message, "aclnnBroken");
    broken = false;
    CHECK(!device.run(graph) && ran);
  }
}

TEST(a_value_wait_holds_the_replay_until_the_write) {
  for (const auto schedule : schedules) {
    TestDevice device(schedule);
    const auto origin = device.stream();
    std::uint64_t cell = 0;
    std::atomic<bool> ran{false};
    GraphPtr graph;
    CHECK(!device.captures.begin(origin, CaptureMode::global, &graph));
    CHECK(!device.captures.add(origin, NodeKind::value_wait, "", {}, {&cell, ValueTest::equal, 1}));
    CHECK(!device.captures.add(origin, NodeKind::value_write, "", [&] { write_value(&cell, 0); }));
    CHECK(!device.launch(origin, [&] { ran = true; }));
    CHECK(!device.captures.end(origin, &graph));
    std::thread replay([&] { CHECK(!device.run(graph)); });
    pause_ms(10);
    CHECK(!ran);
    write_value(&cell, 1);
    replay.join();
    CHECK(ran && read_value(&cell) == 0);
  }
}

TEST(a_replay_that_waits_can_be_given_up) {
  for (const auto schedule : schedules) {
    TestDevice device(schedule);
    const auto origin = device.stream();
    std::uint64_t cell = 0;
    bool ran = false;
    GraphPtr graph;
    CHECK(!device.captures.begin(origin, CaptureMode::global, &graph));
    CHECK(!device.captures.add(origin, NodeKind::value_wait, "", {}, {&cell, ValueTest::equal, 1}));
    CHECK(!device.launch(origin, [&] { ran = true; }));
    CHECK(!device.captures.end(origin, &graph));
    std::thread replay([&] { CHECK(!device.run(graph)); });
    pause_ms(5);
    device.given_up = true;
    replay.join();
    CHECK(!ran);
  }
}

TEST(a_value_may_pass_between_lanes) {
  for (const auto schedule : schedules) {
    TestDevice device(schedule);
    const auto origin = device.stream();
    const auto side = device.stream();
    const auto fork = new_event();
    const auto joined = new_event();
    std::uint64_t cell = 0;
    int value = 0;
    int seen = 0;
    GraphPtr graph;
    CHECK(!device.captures.begin(origin, CaptureMode::global, &graph));
    CHECK(!device.record(origin, fork));
    CHECK(!device.captures.wait(side, fork));
    CHECK(!device.captures.add(side, NodeKind::value_wait, "", {}, {&cell, ValueTest::equal, 1}));
    CHECK(!device.launch(side, [&] { seen = value; }));
    CHECK(!device.captures.add(side, NodeKind::value_write, "", [&] { write_value(&cell, 0); }));
    CHECK(!device.record(side, joined));
    CHECK(!device.launch(origin, [&] { ++value; }));
    CHECK(!device.captures.add(origin, NodeKind::value_write, "", [&] { write_value(&cell, 1); }));
    CHECK(!device.captures.wait(origin, joined));
    CHECK(!device.captures.end(origin, &graph));
    for (int i = 1; i <= 20; ++i) {
      CHECK(!device.run(graph));
      CHECK(seen == i);
    }
  }
}

TEST(two_threads_may_replay_one_graph) {
  TestDevice device;
  const auto origin = device.stream();
  int count = 0;
  GraphPtr graph;
  CHECK(!device.captures.begin(origin, CaptureMode::global, &graph));
  CHECK(!device.launch(origin, [&] { ++count; }));
  CHECK(!device.captures.end(origin, &graph));
  std::vector<std::thread> hosts;
  for (int i = 0; i < 4; ++i) {
    hosts.emplace_back([&] { for (int j = 0; j < 100; ++j) CHECK(!device.run(graph)); });
  }
  for (auto& host : hosts) host.join();
  CHECK(count == 400);
}

TEST(a_task_group_runs_what_it_was_updated_with) {
  TestDevice device;
  const auto origin = device.stream();
  const auto updates = device.stream();
  int before = 0;
  int value = 0;
  GraphPtr graph;
  TaskGroupPtr group;
  CHECK(!device.captures.begin(origin, CaptureMode::global, &graph));
  CHECK(!device.launch(origin, [&] { ++before; }));
  CHECK(!device.captures.begin_group(origin));
  CHECK(!device.launch(origin, [&] { value = 1; }));
  CHECK(!device.captures.end_group(origin, &group));
  CHECK(!device.captures.end(origin, &graph));
  CHECK(!device.run(graph) && value == 1);

  CHECK(!device.captures.begin_update(updates, group));
  CHECK(!device.launch(updates, [&] { value = 2; }));
  CHECK(value == 1);
  CHECK(!device.captures.end_update(updates));
  CHECK(updates->synchronize({}));
  CHECK(!device.run(graph) && value == 2 && before == 2);

  CHECK(!device.captures.begin_update(updates, group));
  CHECK(device.captures.end_update(updates)->status == status_of(Fault::group_update_failed));
  CHECK(device.captures.end_update(updates)->status == status_of(Fault::group_status));
  CHECK(!device.launch(updates, [&] { value = 3; }));  // an ordinary stream again
  CHECK(updates->synchronize({}) && value == 3);
}

TEST(groups_are_updated_while_replays_run) {
  TestDevice device;
  const auto origin = device.stream();
  const auto updates = device.stream();
  std::atomic<int> value{0};
  GraphPtr graph;
  TaskGroupPtr group;
  CHECK(!device.captures.begin(origin, CaptureMode::global, &graph));
  CHECK(!device.captures.begin_group(origin));
  CHECK(!device.launch(origin, [&] { value = -1; }));
  CHECK(!device.captures.end_group(origin, &group));
  CHECK(!device.captures.end(origin, &graph));
  std::thread replays([&] { for (int i = 0; i < 200; ++i) CHECK(!device.run(graph)); });
  for (int i = 1; i <= 200; ++i) {
    CHECK(!device.captures.begin_update(updates, group));
    CHECK(!device.launch(updates, [&value, i] { value = i; }));
    CHECK(!device.captures.end_update(updates));
  }
  replays.join();
  CHECK(updates->synchronize({}));
  CHECK(!device.run(graph) && value == 200);
}
