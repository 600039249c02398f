"""Limits the gRPC streams that write in one turn of the event loop.

grpc.aio accepts one call, and reads one message of a stream, per turn of the event loop. A turn in
which hundreds of streams write takes a tenth of a second. New calls then wait for seconds, and so
do the tokens of all streams, which come as messages of the scheduler. With a few writers a turn
takes milliseconds. A stream that waits for its turn loses nothing: its tokens are merged into one
message meanwhile.
"""

import asyncio
from collections import deque
from typing import Final

STREAMS_PER_TURN: Final = 3
"""Writing a message takes some 0.1 ms of the event loop."""


class ReaderTurns:
    """Lets the streams of one event loop write; the stream that has waited longest comes first."""

    def __init__(self, per_turn: int = STREAMS_PER_TURN) -> None:
        """Create the reader turns.

        Args:
            per_turn: Streams that write in one turn of the event loop.
        """
        self._per_turn = per_turn
        self._num_left = 0
        self._is_counting = False
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def wait(self) -> None:
        """Return when the stream may write: at once while few streams do."""
        if not self._is_counting:
            self._begin_turn()
        if self._num_left > 0 and not self._waiting:
            self._num_left -= 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        await turn

    def _begin_turn(self) -> None:
        self._num_left = self._per_turn
        self._is_counting = True
        asyncio.get_running_loop().call_soon(self._end_turn)

    def _end_turn(self) -> None:
        self._is_counting = False
        if not self._waiting:
            return
        self._begin_turn()
        while self._waiting and self._num_left > 0:
            turn = self._waiting.popleft()
            # A stream whose client has left is cancelled, and takes no turn.
            if not turn.done():
                turn.set_result(None)
                self._num_left -= 1
