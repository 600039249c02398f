"""The requests of a load test: makes prompts, schedules their sending and bounds open requests."""

import contextlib
import http.client
import math
import random
import signal
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

from pagewire.bench.openai_stream import Target, Timed, request_body, run_request
from pagewire_shared.errors import UnavailableError

# Short and common words: one token each in most vocabularies.
_WORDS = (
    *("the", "a", "one", "little", "old", "red", "big", "dog", "cat", "bird", "tree", "house"),
    *("river", "stone", "went", "saw", "found", "asked", "gave", "took", "ran", "home", "day"),
    *("night", "sun", "rain", "with", "under", "over", "near", "to", "from", "and", "but", "so"),
)

_CALIBRATION_WORDS = 64
LOOK_SECONDS = 0.1
"""How soon a load that waits for the next arrival notices that it is ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Requests to send.

    Attributes:
        request_rate: Mean requests per second with Poisson arrivals; infinity for all at once.
        max_concurrency: Most open requests.
        input_len: Approximate tokens per prompt; the server's tokenizer counts the words.
        output_len: Tokens per answer.
        ignore_eos: Request exactly `output_len` tokens (an extension of vLLM and Pagewire).
    """

    num_prompts: int
    request_rate: float
    max_concurrency: int
    input_len: int
    output_len: int
    ignore_eos: bool
    seed: int


@dataclass(frozen=True, slots=True)
class LoadResult:
    """What came of a load.

    Attributes:
        requests: Requests that ended, in order of sending.
        seconds: Duration of the whole load.
        is_interrupted: Whether it was ended early; requests under way then are left out.
    """

    requests: list[Timed]
    seconds: float
    is_interrupted: bool


class Progress(Protocol):
    """Shows how far a load is. Called from several threads."""

    def text(self) -> None:
        """Note a chunk with text."""
        ...

    def ended(self, timed: Timed, num_open: int) -> None:
        """Note the end of a request; `num_open` others are under way."""
        ...


class BenchRun:
    """Sends one load, with a thread for each open request."""

    def __init__(self, target: Target, load: Workload, progress: Progress | None = None) -> None:
        self._target = target
        self._load = load
        self._progress = progress
        self._open: set[http.client.HTTPConnection] = set()
        self._ended: dict[int, Timed] = {}
        self._lock = threading.Lock()
        self._is_stopped = False

    def run(self) -> LoadResult:
        """Send the load; an interrupt of this thread ends it early.

        Raises:
            UnavailableError: The first request, which calibrates the prompts, failed.
        """
        load, chance = self._load, random.Random(self._load.seed)
        num_words = max(1, round(load.input_len * _calibrate(self._target)))
        bodies = [
            request_body(self._target, words(chance, num_words), load.output_len, load.ignore_eos)
            for _ in range(load.num_prompts)
        ]
        arrivals = arrival_seconds(chance, load.num_prompts, load.request_rate)
        began = time.perf_counter()
        with self._stopped_by_interrupt(), ThreadPoolExecutor(load.max_concurrency) as pool:
            self._send(pool, bodies, arrivals)
        seconds = time.perf_counter() - began
        requests = [self._ended[number] for number in sorted(self._ended)]
        return LoadResult(requests, seconds, self._is_stopped)

    def _send(self, pool: Executor, bodies: list[bytes], arrivals: list[float]) -> None:
        began, room = time.perf_counter(), threading.Semaphore(self._load.max_concurrency)

        def run(number: int, body: bytes) -> None:
            try:
                self._run_one(number, body)
            finally:
                room.release()

        futures = []
        for number, (body, arrival) in enumerate(zip(bodies, arrivals, strict=True)):
            while (rest := began + arrival - time.perf_counter()) > 0 and not self._is_stopped:
                time.sleep(min(rest, LOOK_SECONDS))
            room.acquire()
            if self._is_stopped:
                break
            futures.append(pool.submit(run, number, body))
        for future in futures:
            future.result()

    @contextlib.contextmanager
    def _stopped_by_interrupt(self) -> Iterator[None]:
        """End the load at an interrupt; an exception could leave locks of the threads taken."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = signal.signal(signal.SIGINT, lambda *_: self._stop())
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def _run_one(self, number: int, body: bytes) -> None:
        connection = self._target.connect()
        with self._lock:
            if self._is_stopped:
                return
            self._open.add(connection)
        timed = run_request(self._target, body, connection, self._on_text)
        with self._lock:
            self._open.discard(connection)
            if self._is_stopped:
                return
            self._ended[number] = timed
            num_open = len(self._open)
        if self._progress is not None:
            self._progress.ended(timed, num_open)

    def _on_text(self) -> None:
        if self._is_stopped:
            raise ConnectionAbortedError("the load was ended")
        if self._progress is not None:
            self._progress.text()

    def _stop(self) -> None:
        """End the open requests. Takes no lock: the main thread may be anywhere."""
        self._is_stopped = True
        for connection in list(self._open):
            with contextlib.suppress(OSError):
                if connection.sock is not None:
                    connection.sock.shutdown(socket.SHUT_RDWR)


def words(chance: random.Random, count: int) -> str:
    """Return `count` random short words."""
    return " ".join(chance.choice(_WORDS) for _ in range(count))


def arrival_seconds(chance: random.Random, count: int, rate: float) -> list[float]:
    """Return the time of each request, from 0: a Poisson process of `rate` per second."""
    if math.isinf(rate):
        return [0.0] * count
    arrivals, now = [], 0.0
    for _ in range(count):
        arrivals.append(now)
        now += chance.expovariate(rate)
    return arrivals


def _calibrate(target: Target) -> float:
    """Return words per token, from two prompt lengths, so that a chat template does not count."""
    counts = []
    for num_words in (_CALIBRATION_WORDS, 3 * _CALIBRATION_WORDS):
        chance = random.Random(num_words)
        timed = run_request(target, request_body(target, words(chance, num_words), 1, False))
        if timed.error is not None:
            raise UnavailableError(f"the first request failed: {timed.error}")
        counts.append(timed.num_prompt_tokens)
    num_tokens = counts[1] - counts[0]
    return 2 * _CALIBRATION_WORDS / num_tokens if num_tokens > 0 else 1.0
