"""What copies on streams of their own wait for, and who waits for them."""

import threading

import pytest

from pagewire_worker.kv.stream_copies import Stream, StreamCopies
from support.kernels.fake_streams import FakeStreams


@pytest.fixture
def streams():
    return FakeStreams()


@pytest.fixture
def copies(streams):
    made = StreamCopies(streams, pin=lambda memory: lambda: None)
    yield made
    streams.run_all()
    made.close()


def test_calls_come_in_order_and_not_before_their_copies(streams, copies):
    called, has_two = [], threading.Event()
    events = [copies.copy_out([block], lambda: None) for block in (1, 2)]
    copies.call_after(events[0], lambda: called.append(1))
    copies.call_after(events[1], lambda: (called.append(2), has_two.set()))
    assert not has_two.wait(0.05)
    assert called == []
    streams.run_all()
    assert has_two.wait(5)
    assert called == [1, 2]


def test_a_step_of_other_blocks_waits_for_no_copy(streams, copies):
    copies.copy_out([1, 2], lambda: None)
    copies.overwrite([3])
    streams.enqueue(Stream.COMPUTE, lambda: None)
    after = streams.record(Stream.COMPUTE)
    is_copied = streams._queues[Stream.OUT]
    num_left = len(is_copied)
    while not after.query():
        queue = streams._queues[Stream.COMPUTE]
        assert streams._is_ready(queue)
        queue.popleft()()
    assert len(is_copied) == num_left


def test_steps_nobody_waits_for_come_before_loads(streams, copies):
    order = []
    streams.enqueue(Stream.COMPUTE, lambda: order.append("step"))
    copies.order_loads()
    copies.load(lambda: order.append("load"))
    streams.run_all()
    assert order == ["step", "load"]


def test_blocks_of_a_copy_that_could_not_begin_are_waited_for_too(streams, copies):
    def fail():
        raise RuntimeError("no memory")

    streams.enqueue = lambda stream, work: work()
    with pytest.raises(RuntimeError, match="no memory"):
        copies.copy_out([4], fail)
    copies.overwrite([4])
    assert len(streams._queues[Stream.COMPUTE]) == 2  # what the copy waits for, and the wait for it


def test_a_call_that_fails_ends_no_other(streams, copies):
    has_come = threading.Event()
    event = copies.copy_out([1], lambda: None)
    copies.call_after(event, lambda: 1 // 0)
    copies.call_after(event, has_come.set)
    streams.run_all()
    assert has_come.wait(5)


def test_closing_makes_the_calls_that_are_left(streams, copies):
    called = []
    event = copies.copy_out([1], lambda: None)
    copies.call_after(event, lambda: called.append(1))
    streams.run_all()
    copies.close()
    assert called == [1]
    copies.call_after(event, lambda: called.append(2))
    assert called == [1]


def test_a_failed_device_hands_nothing_on(streams, copies):
    class Failed:
        def query(self):
            raise RuntimeError("device")

        def synchronize(self):
            raise RuntimeError("device")

    called, has_come = [], threading.Event()
    copies.call_after(Failed(), lambda: called.append(1))
    copies.call_after(streams.record(Stream.OUT), has_come.set)
    streams.run_all()
    assert has_come.wait(5)
    assert called == []
