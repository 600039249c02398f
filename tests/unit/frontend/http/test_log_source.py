"""The log of a kept stream, read by one connection as it is written."""

from pagewire_frontend.http.kept_streams.log_source import LogSource
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
