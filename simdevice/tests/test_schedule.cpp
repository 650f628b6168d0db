// SPDX-License-Identifier: Apache-2.0
// A wait that is missing must be able to show: under a hostile order it does, every time.
#include <chrono>
#include <vector>

#include "device.h"

using namespace simdevice;

namespace {

// Two streams, no wait between them: the second should have waited for what the first does.
GraphPtr capture_without_wait(TestDevice& device, int& value, int& seen) {
  const auto origin = device.stream();
  const auto side = device.stream();
  const auto fork = new_event();
  const auto joined = new_event();
  GraphPtr graph;
  CHECK(!device.captures.begin(origin, CaptureMode::global, &graph));
  CHECK(!device.record(origin, fork));
  CHECK(!device.captures.wait(side, fork));
  CHECK(!device.launch(origin, [&value] { ++value; }));
  CHECK(!device.launch(side, [&value, &seen] { seen = value; }));
  CHECK(!device.record(side, joined));
  CHECK(!device.captures.wait(origin, joined));
  CHECK(!device.captures.end(origin, &graph));
  return graph;
}

}  // namespace

TEST(adversarial_replay_shows_a_missing_wait_every_time) {
  TestDevice device({Order::adversarial, 0});
  int value = 0;
  int seen = 0;
  const auto graph = capture_without_wait(device, value, seen);
  for (int i = 1; i <= 20; ++i) {
    CHECK(!device.run(graph));
    CHECK(value == i && seen == i - 1);
  }
}

TEST(adversarial_replay_shows_a_missing_wait_before_streams_join) {
  TestDevice device({Order::adversarial, 0});
  const auto origin = device.stream();
  const auto side = device.stream();
  const auto fork = new_event();
  const auto joined = new_event();
  int value = 0;
  int seen = 0;
  GraphPtr graph;
  CHECK(!device.captures.begin(origin, CaptureMode::global, &graph));
  CHECK(!device.record(origin, fork));
  CHECK(!device.captures.wait(side, fork));
  CHECK(!device.launch(side, [&value] { ++value; }));
  CHECK(!device.record(side, joined));
  // Here the wait is missing; it comes too late.
  CHECK(!device.launch(origin, [&value, &seen] { seen = value; }));
  CHECK(!device.captures.wait(origin, joined));
  CHECK(!device.launch(origin, [] {}));
  CHECK(!device.captures.end(origin, &graph));
  for (int i = 1; i <= 20; ++i) {
    CHECK(!device.run(graph));
    CHECK(value == i && seen == i - 1);
  }
}

TEST(seeds_try_both_orders) {
  TestDevice device({Order::seeded, 1});
  int value = 0;
  int seen = 0;
  const auto graph = capture_without_wait(device, value, seen);
  int stale = 0;
  for (int i = 1; i <= 40; ++i) {
    CHECK(!device.run(graph));
    stale += seen == i - 1;
  }
  CHECK(stale > 0 && stale < 40);
}

TEST(the_same_seed_gives_the_same_orders) {
  std::vector<int> results[2];
  for (auto& result : results) {
    TestDevice device({Order::seeded, 7});
    int value = 0;
    int seen = 0;
    const auto graph = capture_without_wait(device, value, seen);
    for (int i = 0; i < 20; ++i) {
      CHECK(!device.run(graph));
      result.push_back(value - seen);
    }
  }
  CHECK(results[0] == results[1]);
}

TEST(adversarial_streams_show_a_missing_wait) {
  TestDevice device({Order::adversarial, 0});
  const auto producer = device.stream();
  const auto consumer = device.stream();
  for (int i = 0; i < 5; ++i) {
    std::atomic<int> value{0};
    std::atomic<int> seen{-1};
    const auto start = std::chrono::steady_clock::now();
    device.launch(producer, [&] { value = 1; });
    device.launch(consumer, [&] { seen = value.load(); });
    // A kernel waits only so long for others to be submitted, and on a busy machine this thread may come too late.
    const bool in_time = std::chrono::steady_clock::now() - start < std::chrono::milliseconds(1);
    producer->synchronize({});
    consumer->synchronize({});
    CHECK(seen == 0 || !in_time);
  }
}

TEST(adversarial_streams_respect_waits) {
  TestDevice device({Order::adversarial, 0});
  const auto producer = device.stream();
  const auto consumer = device.stream();
  for (int i = 0; i < 5; ++i) {
    int value = 0;
    int seen = 0;
    const auto event = new_event();
    device.launch(producer, [&] { value = 1; });
    device.record(producer, event);
    consumer->wait_for(event->last().point);
    device.launch(consumer, [&] { seen = value; });
    consumer->synchronize({});
    producer->synchronize({});
    CHECK(seen == 1);
  }
}
