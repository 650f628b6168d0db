// SPDX-License-Identifier: Apache-2.0
// What captures forbid, and that everything works again after they failed.
#include <array>

#include "device.h"

using namespace simdevice;

namespace {

// A new capture on this stream succeeds and its graph runs.
void check_usable(TestDevice& device, const StreamPtr& stream) {
  CHECK(stream->recording() == Stream::Recording::none);
  CHECK(!stream->failure());
  bool ran = false;
  CHECK(!device.launch(stream, [&] { ran = true; }));
  CHECK(stream->synchronize({}) && ran);
  GraphPtr graph;
  ran = false;
  CHECK(!device.captures.begin(stream, CaptureMode::global, &graph));
  CHECK(!device.launch(stream, [&] { ran = true; }));
  CHECK(!ran);
  CHECK(!device.captures.end(stream, &graph));
  CHECK(!device.run(graph) && ran);
}

void check_end_fails(TestDevice& device, const StreamPtr& stream, Status status, const char* part) {
  GraphPtr graph;
  const auto failure = device.captures.end(stream, &graph);
  CHECK(failure && failure->status == status && !graph);
  CHECK_CONTAINS(failure->message, part);
  check_usable(device, stream);
}

}  // namespace

TEST(a_captured_kernel_does_not_run) {
  TestDevice device;
  check_usable(device, device.stream());
}

TEST(begin_end_and_status_are_checked) {
  TestDevice device;
  const auto stream = device.stream();
  GraphPtr graph;
  GraphPtr seen;
  CHECK(device.captures.end(stream, &graph)->status == status_of(Fault::stream_not_captured));
  CHECK(device.captures.status(stream, &seen) == CaptureStatus::none && !seen);
  CHECK(!device.captures.begin(stream, CaptureMode::global, &graph));
  CHECK(device.captures.begin(stream, CaptureMode::global, &seen)->status == status_of(Fault::stream_captured));
  CHECK(device.captures.status(stream, &seen) == CaptureStatus::active && seen == graph);
  GraphPtr ended;
  CHECK(!device.captures.end(stream, &ended) && ended == graph);
  CHECK(device.captures.status(stream, &seen) == CaptureStatus::none);
}

TEST(two_streams_may_be_captured_at_a_time) {
  TestDevice device;
  const auto first = device.stream();
  const auto second = device.stream();
  int value = 0;
  GraphPtr graphs[2];
  CHECK(!device.captures.begin(first, CaptureMode::global, &graphs[0]));
  CHECK(!device.captures.begin(second, CaptureMode::global, &graphs[1]));
  CHECK(!device.launch(first, [&] { value += 1; }));
  CHECK(!device.launch(second, [&] { value += 10; }));
  CHECK(!device.captures.end(first, &graphs[0]));
  CHECK(!device.captures.end(second, &graphs[1]));
  CHECK(!device.run(graphs[1]) && value == 10);
  CHECK(!device.run(graphs[0]) && value == 11);
}

TEST(a_stream_that_was_not_joined_is_named) {
  TestDevice device;
  const auto origin = device.stream();
  const auto side = device.stream();
  const auto fork = new_event();
  GraphPtr graph;
  CHECK(!device.captures.begin(origin, CaptureMode::global, &graph));
  CHECK(!device.record(origin, fork));
  CHECK(!device.captures.wait(side, fork));
  CHECK(!device.launch(side, [] {}, "aclnnForgotten"));
  CHECK(!device.record(side, new_event()));  // a record nobody waits for does not join
  check_end_fails(device, origin, status_of(Fault::capture_unjoined), "aclnnForgotten");
  check_usable(device, side);
}

TEST(work_after_the_join_is_unjoined) {
  TestDevice device;
  const auto origin = device.stream();
  const auto side = device.stream();
  const auto fork = new_event();
  const auto joined = new_event();
  GraphPtr graph;
  CHECK(!device.captures.begin(origin, CaptureMode::global, &graph));
  CHECK(!device.record(origin, fork));
  CHECK(!device.captures.wait(side, fork));
  CHECK(!device.record(side, joined));
  CHECK(!device.captures.wait(origin, joined));
  CHECK(!device.launch(side, [] {}, "aclnnLate"));
  check_end_fails(device, origin, status_of(Fault::capture_unjoined), "aclnnLate");
}

TEST(streams_may_join_through_others) {
  TestDevice device;
  const auto origin = device.stream();
  const auto middle = device.stream();
  const auto far = device.stream();
  const auto events = std::array{new_event(), new_event(), new_event(), new_event()};
  GraphPtr graph;
  CHECK(!device.captures.begin(origin, CaptureMode::global, &graph));
  CHECK(!device.record(origin, events[0]));
  CHECK(!device.captures.wait(middle, events[0]));
  CHECK(!device.record(middle, events[1]));
  CHECK(!device.captures.wait(far, events[1]));
  CHECK(!device.launch(far, [] {}));
  CHECK(!device.record(far, events[2]));
  CHECK(!device.captures.wait(middle, events[2]));
  CHECK(!device.record(middle, events[3]));
  CHECK(!device.captures.wait(origin, events[3]));
  CHECK(!device.captures.end(origin, &graph));
  CHECK(!device.run(graph));
}

TEST(end_belongs_to_the_stream_and_thread_of_begin) {
  TestDevice device;
  const auto origin = device.stream();
  const auto side = device.stream();
  const auto fork = new_event();
  GraphPtr graph;
  CHECK(!device.captures.begin(origin, CaptureMode::thread_local_, &graph));
  CHECK(!device.record(origin, fork));
  CHECK(!device.captures.wait(side, fork));
  CHECK(device.captures.end(side, &graph)->status == status_of(Fault::capture_unmatched));
  std::thread([&] {
    CHECK(device.captures.end(origin, &graph)->status == status_of(Fault::capture_wrong_thread));
  }).join();
  CHECK(origin->recording() == Stream::Recording::captured);
  device.captures.abandon_all();
  check_usable(device, origin);

  CHECK(!device.captures.begin(origin, CaptureMode::relaxed, &graph));
  std::thread([&] { CHECK(!device.captures.end(origin, &graph)); }).join();
}

TEST(synchronising_a_captured_stream_invalidates_the_capture) {
  TestDevice device;
  const auto stream = device.stream();
  for (const auto mode : {CaptureMode::global, CaptureMode::thread_local_, CaptureMode::relaxed}) {
    GraphPtr graph;
    CHECK(!device.captures.begin(stream, mode, &graph));
    CHECK(device.captures.refuse_if_captured(stream, "synchronising")->status == status_of(Fault::stream_captured));
    GraphPtr seen;
    CHECK(device.captures.status(stream, &seen) == CaptureStatus::invalidated);
    const auto failure = device.launch(stream, [] {});
    CHECK(failure->status == status_of(Fault::capture_invalidated));
    check_end_fails(device, stream, status_of(Fault::capture_invalidated), "synchronising");
  }
}

TEST(a_captured_event_cannot_be_waited_for_by_the_host_until_the_capture_ends) {
  TestDevice device;
  const auto stream = device.stream();
  const auto event = new_event();
  GraphPtr graph;
  CHECK(!device.captures.begin(stream, CaptureMode::relaxed, &graph));
  CHECK(!device.record(stream, event));
  CHECK(device.captures.refuse_if_captured(event, "querying")->status == status_of(Fault::event_captured));
  check_end_fails(device, stream, status_of(Fault::capture_invalidated), "querying");
  CHECK(!device.captures.refuse_if_captured(event, "querying"));
}

TEST(an_event_from_before_the_capture_is_refused) {
  TestDevice device;
  const auto stream = device.stream();
  const auto other = device.stream();
  const auto event = new_event();
  CHECK(!device.record(other, event));
  GraphPtr graph;
  CHECK(!device.captures.begin(stream, CaptureMode::global, &graph));
  CHECK(device.captures.wait(stream, event)->status == status_of(Fault::capture_dependency));
  check_end_fails(device, stream, status_of(Fault::capture_invalidated), "outside");

  CHECK(!device.captures.begin(stream, CaptureMode::global, &graph));
  CHECK(!device.captures.wait(stream, new_event()));  // never recorded: nothing to wait for
  CHECK(!device.captures.end(stream, &graph));
}

TEST(two_captures_cannot_be_joined) {
  TestDevice device;
  const auto first = device.stream();
  const auto second = device.stream();
  const auto event = new_event();
  GraphPtr graph;
  CHECK(!device.captures.begin(first, CaptureMode::global, &graph));
  CHECK(!device.captures.begin(second, CaptureMode::global, &graph));
  CHECK(!device.record(first, event));
  CHECK(device.captures.wait(second, event)->status == status_of(Fault::capture_conflict));
  CHECK(device.captures.end(first, &graph)->status == status_of(Fault::capture_invalidated));
  CHECK(device.captures.end(second, &graph)->status == status_of(Fault::capture_invalidated));
  check_usable(device, first);
  check_usable(device, second);
}

// Which threads may make a host call, by the capture's mode and by the mode in which the thread respects captures.
TEST(host_calls_follow_the_modes) {
  struct Case {
    CaptureMode capture;
    CaptureMode thread;
    bool own_allowed;
    bool other_allowed;
  };
  using enum CaptureMode;
  for (const auto& [capture, thread, own_allowed, other_allowed] :
       {Case{global, global, false, false}, Case{global, thread_local_, false, true}, Case{global, relaxed, true, true},
        Case{thread_local_, global, false, true}, Case{thread_local_, thread_local_, false, true},
        Case{thread_local_, relaxed, true, true}, Case{relaxed, global, true, true},
        Case{relaxed, relaxed, true, true}}) {
    for (const bool own : {true, false}) {
      TestDevice device;
      const auto stream = device.stream();
      GraphPtr graph;
      CHECK(!device.captures.begin(stream, capture, &graph));
      FailurePtr failure;
      const auto call = [&] {
        const auto before = Captures::exchange_thread_mode(thread);
        failure = device.captures.check_host_call("aclrtMemcpy");
        CHECK(Captures::exchange_thread_mode(before) == thread);
      };
      if (own) {
        call();
      } else {
        std::thread(call).join();
      }
      const bool allowed = own ? own_allowed : other_allowed;
      CHECK(allowed == !failure);
      const auto ended = device.captures.end(stream, &graph);
      CHECK(allowed == !ended);
      if (allowed) continue;
      CHECK(failure->status == status_of(Fault::capture_forbids_call));
      CHECK_CONTAINS(ended->message, "aclrtMemcpy");
      check_usable(device, stream);
    }
  }
}

TEST(the_capturing_thread_cannot_wait_for_the_device_even_relaxed) {
  TestDevice device;
  const auto stream = device.stream();
  GraphPtr graph;
  CHECK(!device.captures.begin(stream, CaptureMode::relaxed, &graph));
  std::thread([&] { CHECK(!device.captures.check_device_wait("synchronising the device")); }).join();
  CHECK(device.captures.check_device_wait("synchronising the device"));
  check_end_fails(device, stream, status_of(Fault::capture_invalidated), "the device");
}

TEST(task_groups_must_be_balanced) {
  TestDevice device;
  const auto stream = device.stream();
  GraphPtr graph;
  TaskGroupPtr group;
  CHECK(device.captures.begin_group(stream)->status == status_of(Fault::stream_not_captured));
  CHECK(!device.captures.begin(stream, CaptureMode::global, &graph));
  CHECK(device.captures.end_group(stream, &group)->status == status_of(Fault::group_status));
  CHECK(!device.captures.begin_group(stream));
  CHECK(device.captures.begin_group(stream)->status == status_of(Fault::group_status));
  check_end_fails(device, stream, status_of(Fault::group_open), "task group");
}

TEST(a_capture_without_kernels_keeps_its_shape) {
  TestDevice device({}, false);
  const auto stream = device.stream();
  bool ran = false;
  GraphPtr graph;
  CHECK(!device.captures.begin(stream, CaptureMode::global, &graph));
  CHECK(!device.launch(stream, [&] { ran = true; }, "aclnnAdd"));
  CHECK(!device.captures.end(stream, &graph));
  CHECK(graph->nodes().size() == 1 && graph->nodes()[0].name == "aclnnAdd");
  CHECK(!device.run(graph) && !ran);
}

TEST(captures_may_begin_and_end_in_many_threads) {
  TestDevice device;
  std::vector<StreamPtr> streams;
  for (int i = 0; i < 4; ++i) streams.push_back(device.stream());
  std::vector<std::thread> hosts;
  for (const auto& stream : streams) {
    hosts.emplace_back([&device, stream] {
      for (int i = 0; i < 50; ++i) {
        int value = 0;
        GraphPtr graph;
        CHECK(!device.captures.begin(stream, CaptureMode::thread_local_, &graph));
        CHECK(!device.launch(stream, [&] { ++value; }));
        CHECK(!device.captures.end(stream, &graph));
        CHECK(!device.run(graph) && value == 1);
      }
    });
  }
  for (auto& host : hosts) host.join();
}
