"""Rank 0's side of a group: the processes of the other ranks, messages to them, and their end."""

import contextlib
import json
import logging
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from typing import Any, Final, Literal, Protocol, TypeVar, overload

from pagewire_shared.errors import InternalError, PagewireError
from pagewire_worker.backend.collectives import RankLostError
from pagewire_worker.parallel.messages import RankCommand, encode
from pagewire_worker.parallel.rank_links import RankLinks
from pagewire_worker.parallel.rank_stacks import RankStacks
from pagewire_worker.parallel.replies import gather_replies
from pagewire_worker.parallel.shared_collectives import SharedCollectives

STEP_SECONDS: Final = 30.0
"""Most time that a rank waits for another one within a step; all compute the same amount."""

CALL_SECONDS: Final = 60.0
POLL_SECONDS: Final = 0.05
REASON_POLLS: Final = 3
TICK_SECONDS: Final = 1.0

_logger = logging.getLogger(__name__)

Result = TypeVar("Result")

RankFunctions = Mapping[str, Callable[..., Any]]
"""What `collective_rpc` may call, by name; arguments and results are values of JSON."""


class RankProcesses(Protocol):
    """The processes of the ranks behind the first."""

    @property
    def links(self) -> Sequence[socket.socket]:
        """Rank 0's ends of the sockets to the others; see RankLinks."""
        ...

    def start(self) -> None:
        """Start them. The thread that calls this must live as long as they."""
        ...

    def ended(self) -> tuple[int, str] | None:
        """Return a rank whose process has ended, and how; None while all run."""
        ...

    def stacks(self) -> list[RankStacks]:
        """Return where the code of each rank is, also of one that hangs."""
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
        links: Requests to the others beside steps.
        post: Queues a job of the model thread; calls it at once before there is such a thread.
        lost: Gets a RankLostError when a rank is lost.
    """

    def __init__(self, collectives: SharedCollectives, processes: RankProcesses) -> None:
        self.collectives = collectives
        self.functions: RankFunctions = {}
        self.post: Callable[[Callable[[], None]], None] = _at_once
        self.lost: Future[None] = Future()
        self.links = RankLinks(processes.links, self._unlinked)
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

    @overload
    def collective_rpc(
        self,
        method: str,
        timeout: float = CALL_SECONDS,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        unique_reply_rank: int | None = None,
        *,
        non_block: Literal[False] = False,
    ) -> list[Any]: ...

    @overload
    def collective_rpc(
        self,
        method: str,
        timeout: float = CALL_SECONDS,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        unique_reply_rank: int | None = None,
        *,
        non_block: Literal[True],
    ) -> Future[list[Any]]: ...

    def collective_rpc(
        self,
        method: str,
        timeout: float = CALL_SECONDS,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        unique_reply_rank: int | None = None,
        *,
        non_block: bool = False,
    ) -> list[Any] | Future[list[Any]]:
        """Call a function in all ranks, and return their results by rank. In the model thread.

        Args:
            method: Name in the functions of every rank.
            timeout: Seconds; a rank that takes longer is lost.
            args, kwargs: Values of JSON.
            unique_reply_rank: The only rank whose result is returned; None for those of all.
            non_block: Return a future of the outcome, from any thread. The call waits for the jobs
                of the model thread before it; one that is cancelled before it begins is not made.

        Raises:
            InternalError: The function raised in a rank; all ranks go on.
            RankLostError: A rank is lost.
            queue.Full: With `non_block`, too many jobs wait.
        """
        call = {
            "method": method,
            "timeout": timeout,
            "args": list(args),
            "kwargs": dict(kwargs or {}),
            "unique_reply_rank": unique_reply_rank,
        }
        if not non_block:
            return self._call(call)
        future: Future[list[Any]] = Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(self._call(call))
            except BaseException as error:  # noqa: BLE001 - raised from the future instead
                future.set_exception(error)

        self.post(run)
        return future

    def _call(self, call: Mapping[str, Any]) -> list[Any]:
        self.send(encode(RankCommand.CALL, text=json.dumps(call)))
        try:
            return gather_replies(self.collectives, self.functions, call)
        except RankLostError:
            raise self.reason() from None
        finally:
            self.collectives.set_timeout(STEP_SECONDS)

    def beside(
        self,
        method: str,
        own: Callable[[], Result],
        on_wait: Callable[[], None],
        timeout: float,
        kwargs: Mapping[str, Any],
    ) -> Result:
        """Call a function in all other ranks and `own` in this one; return the result of `own`.

        Args:
            on_wait: Called about every second while the others take longer than `own`.

        Raises:
            Exception: That of `own`, as it is.
            PagewireError, RankLostError: As of `collective_rpc`.
        """
        done = threading.Event()
        ticker = threading.Thread(target=_tick, args=(done, on_wait), name="ranks-wait")
        results: list[Result] = []
        errors: list[Exception] = []

        def call(**_: object) -> None:
            try:
                results.append(own())
            except Exception as error:
                errors.append(error)
                raise
            finally:
                ticker.start()

        before, self.functions = self.functions, {**self.functions, method: call}
        try:
            self.collective_rpc(method, timeout, kwargs=kwargs)
        except InternalError:
            if errors:
                raise errors[0] from None
            raise
        finally:
            self.functions = before
            done.set()
        return results[0]

    @contextlib.contextmanager
    def together(self, what: str) -> Iterator[None]:
        """End the group if rank 0 fails alone in `what`, such as "a step": the others wait for it.

        Raises:
            RankLostError: A rank failed or is lost.
        """
        try:
            yield
        except RankLostError:
            raise self.reason() from None
        except Exception as error:
            message = f"rank 0 failed in {what}: {type(error).__name__}: {error}"
            self.end(0, message)
            raise RankLostError(message) from error

    def stacks(self) -> list[RankStacks]:
        """Return where the code of the other ranks is; takes up to a second, in any thread."""
        return self._processes.stacks()

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
        self._closing.wait((REASON_POLLS + 3) * POLL_SECONDS)
        # One that is cancelled belongs to a worker that stops.
        if self.lost.done() and not self.lost.cancelled():
            error = self.lost.exception()
            if isinstance(error, RankLostError):
                return error
        return RankLostError(f"rank {self.collectives.lost} of the group is lost")

    def _unlinked(self, rank: int, how: str) -> RankLostError:
        """End the group because of a rank that answers no requests, unless it has ended already."""
        reason = self.reason()
        if not self._closing.is_set():
            reason = RankLostError(self._lost_text(rank, how))
            self.end(rank, reason.message)
        return reason

    def _lost_text(self, rank: int, how: str) -> str:
        return f"rank {rank} of {self.collectives.topology.size} is lost: {how}"

    def _ended_soon(self) -> tuple[int, str] | None:
        """Return a rank that has ended. The end of a process may be heard before its reason."""
        found = None
        for _ in range(REASON_POLLS):
            if found is None and not self._closing.wait(POLL_SECONDS):
                found = self._processes.ended()
        return found

    def _fail_start(self, error: PagewireError) -> None:
        self._processes.close()
        self._started.set_exception(error)

    def _watch(self) -> None:
        """Start the processes and watch them. They live as long as this thread at the longest."""
        try:
            self._processes.start()
        except PagewireError as error:
            self._fail_start(error)
            return
        except Exception as error:  # noqa: BLE001 - the thread that waits raises it
            self._fail_start(PagewireError(f"a rank cannot be started: {error}"))
            return
        self._started.set_result(None)
        while not self._closing.wait(POLL_SECONDS):
            found = self._processes.ended()
            if found is None and self.collectives.lost is not None:
                rank = self.collectives.lost
                found = self._ended_soon() or (rank, "it did not answer in time")
            if found is not None:
                rank, how = found
                self.end(rank, self._lost_text(rank, how))
        self._processes.close()
        self.links.close()


def _tick(done: threading.Event, on_wait: Callable[[], None]) -> None:
    while not done.wait(TICK_SECONDS):
        on_wait()


def _at_once(job: Callable[[], None]) -> None:
    job()
