"""The requests of a load test: makes prompts, schedules their sending and bounds open requests."""

import math
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from pagewire.bench.openai_stream import Target, Timed, request_body, run_request
from pagewire_shared.errors import UnavailableError

# Short and common words: one token each in most vocabularies.
_WORDS = (
    *("the", "a", "one", "little", "old", "red", "big", "dog", "cat", "bird", "tree", "house"),
    *("river", "stone", "went", "saw", "found", "asked", "gave", "took", "ran", "home", "day"),
    *("night", "sun", "rain", "with", "under", "over", "near", "to", "from", "and", "but", "so"),
)

_CALIBRATION_WORDS = 64


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


def run_load(
    target: Target, load: Workload, advance: Callable[[], object] = lambda: None
) -> tuple[list[Timed], float]:
    """Send the load; return the requests in order of sending and the seconds of the whole load.

    Raises:
        UnavailableError: The first request, which calibrates the prompts, failed.
    """
    chance = random.Random(load.seed)
    words_per_token = _calibrate(target)
    num_words = max(1, round(load.input_len * words_per_token))
    bodies = [
        request_body(target, words(chance, num_words), load.output_len, load.ignore_eos)
        for _ in range(load.num_prompts)
    ]
    arrivals = arrival_seconds(chance, load.num_prompts, load.request_rate)
    open_requests = threading.Semaphore(load.max_concurrency)

    def run(body: bytes) -> Timed:
        try:
            return run_request(target, body)
        finally:
            open_requests.release()
            advance()

    began = time.perf_counter()
    with ThreadPoolExecutor(load.max_concurrency) as pool:
        futures = []
        for body, arrival in zip(bodies, arrivals, strict=True):
            time.sleep(max(0.0, began + arrival - time.perf_counter()))
            open_requests.acquire()
            futures.append(pool.submit(run, body))
        results = [future.result() for future in futures]
    return results, time.perf_counter() - began


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
