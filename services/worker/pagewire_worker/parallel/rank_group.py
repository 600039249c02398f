"""Rank 0's side of a group: the processes of the other ranks, messages to them, and their end."""

import contextlib
import json
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from typing import Any, Final, Protocol

from pagewire_shared.errors import PagewireError
from pagewire_worker.backend.collectives import RankLostError
from pagewire_worker.parallel.messages import RankCommand, encode
from pagewire_worker.parallel.replies import gather_replies
from pagewire_worker.parallel.shared_collectives import SharedCollectives

STEP_SECONDS: Final = 30.0
"""Most time that a rank waits for another one within a step; all compute the same amount."""

CALL_SECONDS: Final = 60.0
POLL_SECONDS: Final = 0.05

_logger = logging.getLogger(__name__)

RankFunctions = Mapping[str, Callable[..., Any]]
"""What `collective_rpc` may call, by name; arguments and results are values of JSON."""


class RankProcesses(Protocol):
    """The processes of the ranks behind the first."""

    def start(self) -> None:
        """Start them. The thread that calls this must live as long as they."""
        ...

    def ended(self) -> tuple[int, str] | None:
        """Return a rank whose process has ended, and how; None while all run."""
        ...

    def close(self) -> None:
        """End them, and wait until they are gone."""
        ...


class RankGroup:
    """The other ranks of a worker, as rank 0 sees them.

    Args:
        collectives: Of rank 0.
        processes: Of the others; started at once.

    Attributes:
        functions: Rank 0's own for `collective_rpc`.
        lost: Gets a RankLostError when a rank is lost.
    """

    def __init__(self, collectives: SharedCollectives, processes: RankProcesses) -> None:
        self.collectives = collectives
        self.functions: RankFunctions = {}
        self.lost: Future[None] = Future()
        self._processes = processes
        self._closing = threading.Event()
        self._started: Future[None] = Future()
        self._monitor = threading.Thread(target=self._watch, name="ranks", daemon=True)
        self._monitor.start()
        self._started.result()

    def send(self, message: bytes) -> None:
        """Send a message to all other ranks. Raises RankLostError."""
        try:
            self.collectives.send(message)
        except RankLostError:
            raise self.reason() from None

    def collective_rpc(
        self,
        method: str,
        timeout: float = CALL_SECONDS,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> list[Any]:
        """Call a function in all ranks, and return their results by rank. In the model thread.

        Args:
            method: Name in the functions of every rank.
            timeout: Seconds; a rank that takes longer is lost.
            args, kwargs: Values of JSON.

        Raises:
            PagewireError: The function raised in a rank; all ranks go on.
            RankLostError: A rank is lost.
        """
        call = {"method": method, "timeout": timeout, "args": list(args), "kwargs": kwargs or {}}
        self.send(encode(RankCommand.CALL, text=json.dumps(call)))
        try:
            return gather_replies(self.collectives, self.functions, call)
        except RankLostError:
            raise self.reason() from None
        finally:
            self.collectives.set_timeout(STEP_SECONDS)

    def end(self, rank: int, message: str) -> None:
        """End the group because of `rank`; the first reason stays. From any thread."""
        self.collectives.lose(rank)
        if not self._closing.is_set():
            # Two threads may find two reasons at once.
            with contextlib.suppress(InvalidStateError):
                self.lost.set_exception(RankLostError(message))
                _logger.error("the group of ranks ends: %s", message)
        self._closing.set()

    def close(self) -> None:
        """End the other ranks' processes, and wait until they are gone."""
        self._closing.set()
        self.collectives.lose(0)
        if threading.current_thread() is not self._monitor:
            self._monitor.join()

    def reason(self) -> RankLostError:
        """Return why the group has ended; waits a moment until that is known."""
        self._closing.wait(4 * POLL_SECONDS)
        # One that is cancelled belongs to a worker that stops.
        if self.lost.done() and not self.lost.cancelled():
            error = self.lost.exception()
            if isinstance(error, RankLostError):
                return error
        return RankLostError(f"rank {self.collectives.lost} of the group is lost")

    def _watch(self) -> None:
        """Start the processes and watch them. They live as long as this thread at the longest."""
        try:
            self._processes.start()
        except OSError as error:
            self._started.set_exception(PagewireError(f"a rank cannot be started: {error}"))
            return
        self._started.set_result(None)
        while not self._closing.wait(POLL_SECONDS):
            found = self._processes.ended()
            if found is None and self.collectives.lost is not None:
                rank = self.collectives.lost
                # A process that ends says so itself before it is gone.
                self._closing.wait(POLL_SECONDS)
                found = self._processes.ended() or (rank, "it did not answer in time")
            if found is not None:
                rank, how = found
                self.end(rank, f"rank {rank} of {self.collectives.topology.tp_size} is lost: {how}")
        self._processes.close()
