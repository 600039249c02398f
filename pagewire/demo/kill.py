"""Kills a process under an open stream and compares the answer with an undisturbed one."""

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from pagewire.client.blocking_client import Client
from pagewire.client.events import Closed, Delta, Event, Finished
from pagewire_shared.errors import UnavailableError

PROMPT: Final = "Once upon a time"


@dataclass(frozen=True, slots=True)
class StreamedAnswer:
    """One streamed answer.

    Attributes:
        text: As the client saw it.
        token_ids: Its tokens.
        arrivals: Instants at which pieces came, in seconds on one clock.
        num_recoveries: Losses of processes that the server says the stream outlived.
    """

    text: str
    token_ids: tuple[int, ...]
    arrivals: tuple[float, ...]
    num_recoveries: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KillReport:
    """What a kill did to a stream.

    Attributes:
        process: Name of the process that was killed.
        pid: Its process id.
        num_before: Tokens that had come when it was killed.
        pause_seconds: Longest time without a token from the kill on.
        killed: The answer under which it was killed.
        undisturbed: The answer to the same request with nothing killed.
    """

    process: str
    pid: int
    num_before: int
    pause_seconds: float
    killed: StreamedAnswer
    undisturbed: StreamedAnswer

    @property
    def is_equal(self) -> bool:
        """Whether both answers have the same tokens and the same text, byte by byte."""
        same_text = self.killed.text.encode() == self.undisturbed.text.encode()
        return same_text and self.killed.token_ids == self.undisturbed.token_ids


def run_kill(
    client: Client,
    processes: Callable[[], dict[str, int]],
    sampling: dict[str, Any],
    *,
    after_tokens: int,
    show: Callable[[str], None],
    on_kill: Callable[[str, int], None],
) -> KillReport:
    """Stream an answer, kill a process in its middle, and ask again without a kill.

    Args:
        processes: Returns name -> process id of the processes, of which the first is killed.
        sampling: Of both requests; with a seed, or a temperature of 0.
        after_tokens: Tokens that come before the kill.
        show: Is given the text of the first answer, piece by piece.
        on_kill: Is given the name and the id of the process, right after the kill.

    Raises:
        UnavailableError: The answer ended before the kill, or no process is left to kill.
    """
    seen = _Seen()
    killed_at: float | None = None
    process, pid, num_before = "", 0, 0
    for event in client.complete(PROMPT, sampling):
        show(seen.take(event))
        if killed_at is None and len(seen.token_ids) >= after_tokens:
            process, pid = next(iter(processes().items()), ("", 0))
            if not pid:
                raise UnavailableError("there is no such process to kill")
            os.kill(pid, signal.SIGKILL)
            killed_at, num_before = time.monotonic(), len(seen.token_ids)
            on_kill(process, pid)
    if killed_at is None:
        raise UnavailableError(
            f"the answer ended after {len(seen.token_ids)} tokens, before the kill"
        )
    undisturbed = _Seen()
    for event in client.complete(PROMPT, sampling):
        undisturbed.take(event)
    return KillReport(
        process=process,
        pid=pid,
        num_before=num_before,
        pause_seconds=_longest_pause(killed_at, seen.arrivals),
        killed=seen.answer(),
        undisturbed=undisturbed.answer(),
    )


class _Seen:
    """Collects what has come of one stream."""

    def __init__(self) -> None:
        self.token_ids: list[int] = []
        self.arrivals: list[float] = []
        self._texts: list[str] = []
        self._num_recoveries = 0

    def take(self, event: Event) -> str:
        """Note an event and return its text."""
        match event:
            case Delta():
                self.arrivals.append(time.monotonic())
                self.token_ids += event.token_ids
            case Closed():
                self._num_recoveries = event.timings.num_recoveries
        text = event.text if isinstance(event, Delta | Finished) else ""
        self._texts.append(text)
        return text

    def answer(self) -> StreamedAnswer:
        """Return what came as one answer."""
        return StreamedAnswer(
            "".join(self._texts),
            tuple(self.token_ids),
            tuple(self.arrivals),
            self._num_recoveries,
        )


def _longest_pause(killed_at: float, arrivals: list[float]) -> float:
    later = [killed_at, *(instant for instant in arrivals if instant > killed_at)]
    return max((late - early for early, late in pairwise(later)), default=0.0)
