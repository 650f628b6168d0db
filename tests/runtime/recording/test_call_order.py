"""Which call waits for which, as streams and events are met one after the other."""

from airgraph.runtime.recording.call_order import CallOrder


def test_events_pass_on_what_their_stream_waits_for() -> None:
    order = CallOrder()
    order.call()
    order.record("a", None)
    # Stream 1 has nothing of its own between the wait and the record.
    order.wait("a", "1")
    order.record("b", "1")
    order.current = "2"
    order.wait("b", "2")
    order.call()
    order.wait("never recorded", "2")
    order.call()
    found = order.finish()
    assert found.waits == {1: (0,)} and found.stream_of == [0, 1, 1] and order.tags() == (None, "2")


def test_a_wait_sees_the_latest_record_before_it() -> None:
    order = CallOrder()
    order.call()
    order.record("a", None)
    order.call()
    order.record("a", None)
    order.wait("a", "1")
    order.call()
    order.record("a", None)
    order.current = "1"
    order.call()
    assert order.finish().waits == {3: (1,)}


def test_random_numbers_are_drawn_in_the_order_of_the_program() -> None:
    order = CallOrder()
    order.call(in_line=True)
    order.current = "1"
    order.call()
    order.call(in_line=True)
    order.current = None
    order.call(in_line=True)
    assert order.finish().waits == {2: (0,), 3: (2,)}
