"""The log of a kept stream, read by one connection as it is written."""

from collections.abc import Callable

import pytest

from pagewire_frontend.http.kept_streams.log_source import LogSource
from pagewire_frontend.http.streaming.event_stream import ready_line
from pagewire_frontend.http.streaming.frame_log import BATCH_BYTES, FrameLog

LARGE = b"x" * (BATCH_BYTES // 2)


def never(text: str) -> bool:
    raise AssertionError("no text is offered")


async def test_it_gives_what_is_there_and_what_comes() -> None:
    log, calls = FrameLog(), []
    log.append([b"a", b"b", b"c"])
    source = LogSource(log, 1)
    source.listen(lambda: calls.append("ready"), never)
    assert calls == ["ready"]
    assert source.take() == b"bc"
    assert (source.take(), source.is_over) == (b"", False)
    log.append([b"d"])
    assert (calls, source.take()) == (["ready"] * 2, b"d")
    log.end()
    assert (calls, source.is_over) == (["ready"] * 3, True)


async def test_a_reader_that_is_late_gets_no_more_than_a_batch() -> None:
    log, calls = FrameLog(), []
    log.append([LARGE] * 5)
    source = LogSource(log, 0)
    source.listen(lambda: calls.append("ready"), never)
    sizes = []
    while calls:
        calls.pop()
        sizes.append(len(source.take()))
    assert sizes == [BATCH_BYTES, BATCH_BYTES, BATCH_BYTES // 2]


async def test_a_reader_that_has_left_is_not_called() -> None:
    log, calls = FrameLog(), []
    source = LogSource(log, 0)
    source.listen(lambda: calls.append("ready"), never)
    source.close()
    source.close()
    log.append([b"a"])
    assert calls == []


class Reader:
    """What a LiveStream takes of a source, and in which order."""

    def __init__(self, source: LogSource) -> None:
        self.source = source
        self.taken = b""
        self.num_pushed = 0
        self.is_full = False
        source.listen(self.fill, never, self.push)

    def fill(self) -> None:
        if not self.is_full:
            self.taken += self.source.take()

    def push(self, event: bytes) -> bool:
        if self.is_full:
            return False
        self.taken += event
        self.num_pushed += 1
        return True

    def drain(self) -> None:
        self.is_full = False
        self.fill()


LINE = ready_line(lambda text: text)


def event(text: str) -> bytes:
    return b'data: "%b"\n\n' % text.encode()


async def test_texts_are_pushed_to_those_who_have_all_before_them() -> None:
    log, counted = FrameLog(), []
    log.append([b"0:begin"])
    add = log.text_adder(LINE, b"%d:", counted.append)
    first, late = Reader(LogSource(log, 0)), Reader(LogSource(log, 5))
    for number in range(1, 8):
        add(f"t{number}")
        add("")
    assert first.num_pushed == 7
    first.is_full = True
    add("t8")
    log.append([b"9:x", b"10:y"])
    add("t11")
    first.drain()
    add("t12")
    assert first.num_pushed == 8
    joined = [b"0:begin", *(b"%d:%b" % (n, event(f"t{n}")) for n in range(1, 9)), b"9:x", b"10:y"]
    joined += [b"11:" + event("t11"), b"12:" + event("t12")]
    assert first.taken == b"".join(joined)
    assert late.taken == b"".join(joined[5:])
    log.end()
    assert [frame async for ready in log.follow(3) for frame in ready] == joined[3:]
    assert log.since(0) == joined
    assert (first.source.is_over, late.source.is_over) == (True, True)
    assert len(counted) == 1, "short ones are counted together"


async def test_texts_are_counted_beforehand_and_refused_without_room() -> None:
    log = FrameLog()

    def refuse(num_bytes: int) -> None:
        raise OverflowError(num_bytes)

    add = log.text_adder(LINE, b"%d:", refuse)
    with pytest.raises(OverflowError):
        add("a")
    assert len(log) == 0


@pytest.mark.parametrize("line", [LINE, str.encode], ids=["texts", "events"])
async def test_long_texts_are_counted_with_their_length(line: Callable[[str], bytes]) -> None:
    counted: list[int] = []
    add = FrameLog().text_adder(line, b"%d:", counted.append)
    for length in (1, 100_000, 2, 70_000):
        add("\N{SNOWMAN}" * length)
    assert sum(counted) >= 3 * 170_003
    assert len(counted) == 3


async def test_a_live_reader_that_leaves_gets_nothing_more() -> None:
    log = FrameLog()
    log.append([b"a"])
    add = log.text_adder(LINE, b"%d:", lambda _: None)
    readers = [Reader(LogSource(log, 0)) for _ in range(2)]
    add("b")
    readers[0].source.close()
    add("c")
    first = b"a1:" + event("b")
    assert [reader.taken for reader in readers] == [first, first + b"2:" + event("c")]


async def test_lines_that_remember_are_called_once_for_each_text() -> None:
    """As those that read tool calls."""
    log, seen = FrameLog(), []

    def remembering(text: str) -> bytes:
        seen.append(text)
        return b"%d;" % len(seen)

    add = log.text_adder(remembering, b"%d:", lambda _: None)
    for text in "abc":
        add(text)
    for _ in range(2):
        assert log.since(0) == [b"0:1;", b"1:2;", b"2:3;"]
    assert seen == ["a", "b", "c"]
