// SPDX-License-Identifier: Apache-2.0
#include <stdexcept>
#include <vector>

#include "device.h"

using namespace simdevice;

TEST(tasks_of_a_stream_run_in_order) {
  TestDevice device;
  const auto stream = device.stream();
  std::vector<int> order;
  for (int i = 0; i < 1000; ++i) device.launch(stream, [&order, i] { order.push_back(i); });
  CHECK(stream->synchronize({}));
  CHECK(order.size() == 1000);
  for (int i = 0; i < 1000; ++i) CHECK(order[static_cast<std::size_t>(i)] == i);
  CHECK(stream->idle());
}

TEST(streams_run_beside_each_other) {
  TestDevice device;
  const auto first = device.stream();
  const auto second = device.stream();
  std::atomic<bool> met{false};
  // Each end needs the other stream to be running.
  device.launch(first, [&] { while (!met) std::this_thread::yield(); });
  device.launch(second, [&] { met = true; });
  CHECK(first->synchronize({}));
  CHECK(second->synchronize({}));
}

TEST(a_wait_orders_two_streams) {
  TestDevice device;
  const auto producer = device.stream();
  const auto consumer = device.stream();
  for (int i = 1; i <= 200; ++i) {
    int value = 0;  // no atomic: ThreadSanitizer sees a missing wait
    int seen = 0;
    const auto event = new_event();
    device.launch(producer, [&] { value = i; });
    device.record(producer, event);
    consumer->wait_for(event->last().point);
    device.launch(consumer, [&] { seen = value; });
    CHECK(consumer->synchronize({}));
    CHECK(seen == i);
    producer->synchronize({});
  }
}

TEST(synchronize_gives_up_at_its_deadline) {
  TestDevice device;
  const auto stream = device.stream();
  std::atomic<bool> release{false};
  device.launch(stream, [&] { while (!release) pause_ms(1); });
  CHECK(!stream->synchronize(deadline_after(20)));
  CHECK(!stream->idle());
  release = true;
  CHECK(stream->synchronize(deadline_after(5000)));
}

TEST(a_failure_stays_and_names_the_kernel) {
  TestDevice device;
  const auto stream = device.stream();
  bool ran = false;
  device.launch(stream, [] { throw std::runtime_error("index out of range"); }, "aclnnGather");
  device.launch(stream, [&] { ran = true; });
  CHECK(stream->synchronize({}));
  CHECK(!ran);
  CHECK(stream->failure()->status == status_of(Fault::kernel_failed));
  CHECK_CONTAINS(stream->failure()->message, "aclnnGather");
  CHECK_CONTAINS(stream->failure()->message, "index out of range");

  stream->clear();
  device.launch(stream, [&] { ran = true; });
  CHECK(stream->synchronize({}));
  CHECK(ran && !stream->failure());
}

TEST(a_stream_told_to_go_on_runs_what_comes_after_a_failure) {
  TestDevice device;
  const auto stream = device.stream();
  stream->set_on_failure(Stream::OnFailure::go_on);
  bool ran = false;
  device.launch(stream, [] { throw std::runtime_error("no"); });
  device.launch(stream, [&] { ran = true; });
  CHECK(stream->synchronize({}));
  CHECK(ran && stream->failure());
}

TEST(a_failure_reaches_those_who_wait) {
  TestDevice device;
  const auto broken = device.stream();
  const auto waiting = device.stream();
  const auto event = new_event();
  device.launch(broken, [] { throw std::runtime_error("no"); }, "aclnnBroken");
  device.record(broken, event);
  waiting->wait_for(event->last().point);
  CHECK(waiting->synchronize({}));
  CHECK_CONTAINS(waiting->failure()->message, "aclnnBroken");
}

TEST(what_a_destroyed_stream_had_queued_still_runs) {
  TestDevice device;
  std::atomic<int> count{0};
  const auto point = std::make_shared<Completion>();
  {
    Stream stream(device.context, 99, 0, 0);
    for (int i = 0; i < 50; ++i) stream.submit({.name = "count", .body = [&] { ++count; }});
    stream.record(point);
  }
  CHECK(point->wait(deadline_after(10000)));
  CHECK(count == 50);
}

TEST(without_kernels_everything_is_complete_at_once_and_no_thread_is_started) {
  TestDevice device({}, false);
  const auto stream = device.stream();
  bool ran = false;
  device.launch(stream, [&] { ran = true; });
  const auto event = new_event();
  device.record(stream, event);
  CHECK(!ran && event->last().point->finished() && stream->idle());
  CHECK(device.workers.wait_until_left(std::chrono::milliseconds(0)));
}

TEST(many_threads_may_use_one_stream) {
  TestDevice device;
  const auto stream = device.stream();
  int count = 0;  // only kernels touch it, one at a time
  std::vector<std::thread> hosts;
  for (int i = 0; i < 4; ++i) {
    hosts.emplace_back([&] {
      for (int j = 0; j < 250; ++j) device.launch(stream, [&] { ++count; });
      stream->synchronize({});
    });
  }
  for (auto& host : hosts) host.join();
  CHECK(stream->synchronize({}));
  CHECK(count == 1000);
}
