"""States of a live stream: only the moves of the table are possible."""

import itertools
from typing import Any, cast

import pytest

from pagewire_frontend.http.streaming.flush_rounds import FlushRounds
from pagewire_frontend.http.streaming.live_stream import LEGAL_MOVES, LiveStream, StreamState


def stream_in(state: StreamState) -> LiveStream:
    unused = cast(Any, None)
    stream = LiveStream(unused, unused, lambda: None, FlushRounds())
    stream.state = state
    return stream


@pytest.mark.parametrize(("state", "target"), list(itertools.product(StreamState, StreamState)))
def test_a_stream_moves_by_its_table(state: StreamState, target: StreamState) -> None:
    stream = stream_in(state)
    if target in LEGAL_MOVES[state]:
        stream.advance(target)
        assert stream.state is target
    else:
        with pytest.raises(AssertionError):
            stream.advance(target)
        assert stream.state is state


@pytest.mark.parametrize("state", [StreamState.NEW, StreamState.FULL, StreamState.CLOSED])
def test_only_an_open_stream_takes_and_writes(state: StreamState) -> None:
    # The source of this stream is None: taking from it would raise.
    stream = stream_in(state)
    stream.fill()
    stream.write()
    assert stream.state is state
