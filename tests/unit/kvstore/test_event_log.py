"""Events of blocks, and who may go on where."""

import pytest

from pagewire_kvstore.blocks.event_log import BlockChange, EventLog
from pagewire_shared.identity.ids import BlockName


def name(number: int) -> BlockName:
    return BlockName(bytes([number]) * 16)


def test_a_watcher_resumes_at_its_position():
    log = EventLog(max_events=4)
    assert log.holds(1)
    assert list(log.since(1)) == []
    events = [log.add(BlockChange.STORED, [name(number)]) for number in range(3)]
    assert [event.sequence for event in events] == [1, 2, 3]
    assert list(log.since(1)) == events
    assert list(log.since(3)) == events[2:]
    assert list(log.since(4)) == []
    assert not log.holds(5)
    assert not log.holds(0)


def test_events_above_the_bound_are_dropped():
    log = EventLog(max_events=4)
    events = [log.add(BlockChange.REMOVED, [name(number)]) for number in range(10)]
    assert not log.holds(6)
    assert list(log.since(7)) == events[6:]
    assert log.next_sequence == 11
    with pytest.raises(AssertionError, match="too old"):
        list(log.since(6))
