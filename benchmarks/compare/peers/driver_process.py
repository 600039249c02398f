"""A server that is only a library: a program of ours runs it and is asked over JSON lines.

The program says `{"ready": true}`, then answers each line `[[prompt, max_tokens], ...]` with one
`{"arrivals": [[[seconds, tokens], ...], ...]}`, or with `{"error": text}`. The seconds are those of
time.perf_counter, which all processes of a machine share on Linux.
"""

import json
import queue
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from compare.peers.protocol import NotStartedError
from compare.peers.server_process import ServerProcess
from compare.work import Request, RunFailedError, Timed


class DriverProcess:
    """A running program.

    Args:
        command: The program and its arguments.
        environment: Variables on top of this process's own.
        log: File for what it prints as errors.
        start_seconds: How long it may take until it is ready.

    Raises:
        NotStartedError: It ended, or that took too long.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        log: Path,
        start_seconds: float,
    ) -> None:
        self._process = ServerProcess(command, environment, log, has_pipes=True)
        self._answers: queue.Queue[dict[str, Any]] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()
        self._is_lost = False
        try:
            self._answer(start_seconds)
        except RunFailedError as error:
            self.stop()
            raise NotStartedError(str(error)) from error
        except BaseException:
            self.stop()
            raise

    @property
    def pid(self) -> int:
        """The first of its processes."""
        return self._process.pid

    def complete(self, requests: Sequence[Request], timeout_seconds: float) -> list[Timed]:
        """Send all at once. Raises RunFailedError."""
        if self._is_lost:
            raise RunFailedError("it still owes an earlier answer")
        line = json.dumps([(one.prompt, one.max_tokens) for one in requests]) + "\n"
        requested, _ = self._process.pipes
        sent = time.perf_counter()
        try:
            requested.write(line.encode())
            requested.flush()
        except OSError as error:
            raise RunFailedError(f"{type(error).__name__}: {self._process.tail()}") from error
        answer = self._answer(timeout_seconds)
        return [
            _timed(sent, arrivals, one)
            for arrivals, one in zip(answer["arrivals"], requests, strict=True)
        ]

    def stop(self) -> None:
        """End all its processes."""
        self._process.stop()

    def _listen(self) -> None:
        _, answers = self._process.pipes
        for line in answers:
            if line.startswith(b"{"):
                self._answers.put(json.loads(line))
        self._answers.put({"error": "it ended"})

    def _answer(self, timeout_seconds: float) -> dict[str, Any]:
        try:
            answer = self._answers.get(timeout=timeout_seconds)
        except queue.Empty:
            self._is_lost = True
            raise RunFailedError(f"no answer after {timeout_seconds:.0f} s") from None
        if "error" in answer:
            raise RunFailedError(f"{answer['error']}: {self._process.tail()}")
        return answer


def _timed(sent: float, arrivals: Sequence[tuple[float, int]], request: Request) -> Timed:
    num_tokens = sum(count for _, count in arrivals)
    if num_tokens != request.max_tokens:
        raise RunFailedError(f"{num_tokens} of {request.max_tokens} tokens came")
    return Timed(sent, [moment for moment, _ in arrivals], num_tokens)
