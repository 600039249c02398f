"""Readings of kept streams over a group, of which members are lost at any moment."""

from collections.abc import AsyncIterator

import pytest

from pagewire_frontend.group.asking import path_before, path_of
from pagewire_frontend.group.holders import holders_of
from pagewire_frontend.group.membership import parse_membership
from pagewire_frontend.group.streams import HeldStreams, StreamFinder
from pagewire_frontend.http.kept_streams.directory import StreamReading
from pagewire_frontend.http.kept_streams.ids import (
    StreamLostError,
    StreamNotFoundError,
    mint_stream_id,
    stream_elsewhere,
    stream_not_found,
)
from pagewire_frontend.http.kept_streams.local_streams import JournalLimits, LocalStreams
from pagewire_frontend.http.kept_streams.recipes import RecipeStore
from pagewire_shared.errors import PagewireError, UnavailableError

EVENTS = [b"event %d" % number for number in range(10)]
NAMES = ["a", "b", "c", "d", "e"]
AWAY = UnavailableError("away")


class Member:
    """Gives events from the one asked for on, until it is lost; or raises what it is told to."""

    def __init__(self, until: int = 0, error: PagewireError | None = None) -> None:
        self.until = until
        self.error = error
        self.asked: list[int] = []

    async def read(self, stream_id: str, tenant: str | None, first: int) -> StreamReading:
        self.asked.append(first)
        if self.error is not None:
            raise self.error
        return StreamReading(self._frames(first), lambda: None)

    async def _frames(self, first: int) -> AsyncIterator[list[bytes]]:
        for number in range(first, self.until):
            yield [EVENTS[number]]
        if self.until < len(EVENTS):
            raise AWAY


def finder_of(members: dict[str, Member]) -> tuple[StreamFinder, LocalStreams]:
    membership = parse_membership("x", ())
    local = LocalStreams(membership.tag, JournalLimits(retention_seconds=1.0, max_bytes=2**20))
    held = HeldStreams(local, RecipeStore(2**20, 1.0))
    return StreamFinder(membership, held, members, num_replicas=2), local


def scene() -> tuple[str, dict[str, Member], list[str]]:
    """Return a stream of "a", members that lack it, and its holders in order."""
    stream_id = mint_stream_id("stream", parse_membership("a", ()).tag)
    members = {name: Member(error=stream_elsewhere(stream_id)) for name in NAMES}
    order = [name for name in holders_of(stream_id, ["x", *NAMES]) if name != "x"]
    return stream_id, members, order


async def read_all(finder: StreamFinder, stream_id: str, first: int = 0) -> list[bytes]:
    reading = await finder.read(stream_id, None, first)
    return [frame async for ready in reading.frames for frame in ready]


async def test_it_goes_on_behind_the_last_event_wherever_members_are_lost() -> None:
    stream_id, members, order = scene()
    members["a"] = Member(3)
    members[order[0]] = Member(7)
    members[order[1]] = Member(10)
    finder, _ = finder_of(members)
    reading = await finder.read(stream_id, None, 1)
    found = []
    async for ready in reading.frames:
        found += ready
        if len(found) == 2:
            members["a"].error = AWAY
        if len(found) == 6:
            members[order[0]].error = AWAY
    assert found == EVENTS[1:]
    assert members[order[0]].asked[0] == 3
    assert members[order[1]].asked == [7]


async def test_the_maker_is_asked_first_and_believed() -> None:
    stream_id, members, order = scene()
    members[order[0]] = Member(10)
    members["a"] = Member(error=stream_not_found(stream_id))
    finder, _ = finder_of(members)
    with pytest.raises(StreamNotFoundError):
        await finder.read(stream_id, None, 0)
    assert not members[order[0]].asked
    # A later process of its name knows nothing of it.
    members["a"] = Member(error=stream_elsewhere(stream_id))
    finder, _ = finder_of(members)
    assert await read_all(finder, stream_id) == EVENTS


async def test_what_no_member_has_is_not_found_or_away() -> None:
    stream_id, members, order = scene()
    finder, _ = finder_of(members)
    with pytest.raises(StreamNotFoundError) as caught:
        await finder.read(stream_id, None, 0)
    assert caught.value.code == "stream_not_found"
    members["a"].error = AWAY
    with pytest.raises(UnavailableError):
        await finder.read(stream_id, None, 0)
    # A client that invents ids does not have all members asked.
    assert sum(bool(one.asked) for one in members.values()) <= 5
    members[order[0]].error = StreamLostError("other tokens")
    with pytest.raises(StreamLostError):
        await finder.read(stream_id, None, 0)


async def test_a_member_that_is_lost_at_once_is_given_up() -> None:
    stream_id, members, _ = scene()
    members["a"] = Member(2)
    finder, _ = finder_of(members)
    with pytest.raises(UnavailableError):
        await read_all(finder, stream_id)
    assert len(members["a"].asked) <= 6


def test_who_has_made_a_stream_again_is_asked_behind_its_maker():
    names = ["a", "b", "c", "d"]
    stream_id = mint_stream_id("stream", parse_membership("b", ()).tag)
    path = path_of(stream_id, names)
    assert path[0] == "b"
    for name in path[1:]:
        rest = [one for one in path[1:] if one != name]
        assert path_of(stream_id, names, name) == ["b", name, *rest]
        assert path_before(stream_id, name, names, "") == path[: path.index(name)]
    # One that left the group is not asked.
    assert path_of(stream_id, names, "gone") == path
    last = path[-1]
    assert path_before(stream_id, path[1], names, last) == ["b", last]
