"""What is asked in each case and which figures come of it. Sends nothing itself."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from compare.work import Ids, Request, Timed, output_rate, percentile, seconds_for_all

MS = 1000.0


@dataclass(frozen=True, slots=True)
class Metric:
    """One row of the table.

    Attributes:
        name: Key among a case's figures.
        title: As the table shows it, with the unit.
        more_is_better: Whether a larger figure is the better one.
        digits: Decimals shown.
    """

    name: str
    title: str
    more_is_better: bool
    digits: int


@dataclass(frozen=True, slots=True)
class Case:
    """Batches of requests, each sent at once and after the one before it has ended.

    Attributes:
        letter: Its name on the command line.
        title: What is asked.
        batches: Makes the requests.
        figures: Makes figures, by the names of `metrics`, from what came of each batch.
        metrics: Rows of the table.
    """

    letter: str
    title: str
    batches: Callable[[Ids], list[list[Request]]]
    figures: Callable[[Sequence[Sequence[Timed]]], dict[str, float]]
    metrics: tuple[Metric, ...]


def _throughput(results: Sequence[Sequence[Timed]]) -> dict[str, float]:
    return {"output_rate": output_rate(results[0])}


def _one_stream(results: Sequence[Sequence[Timed]]) -> dict[str, float]:
    (stream,) = results[0]
    return {
        "itl_p50_ms": percentile(stream.gaps, 50) * MS,
        "itl_mean_ms": stream.seconds_per_token * MS,
        "output_rate": output_rate(results[0]),
    }


def _prefill(results: Sequence[Sequence[Timed]]) -> dict[str, float]:
    return {"prefill_rate": LONG_PROMPT / results[0][0].ttft}


def _streams(results: Sequence[Sequence[Timed]]) -> dict[str, float]:
    firsts = [stream.ttft for stream in results[0]]
    gaps = [gap for stream in results[0] for gap in stream.gaps]
    return {
        "output_rate": output_rate(results[0]),
        "ttft_p50_ms": percentile(firsts, 50) * MS,
        "ttft_p99_ms": percentile(firsts, 99) * MS,
        "itl_p50_ms": percentile(gaps, 50) * MS,
        "itl_p99_ms": percentile(gaps, 99) * MS,
    }


def _shared_prefix(ids: Ids) -> list[list[Request]]:
    prefix = ids.draw(1024)
    return [ids.requests(16, 32, 16, prefix) for _ in ("cold", "warm")]


def _cold_and_warm(results: Sequence[Sequence[Timed]]) -> dict[str, float]:
    cold, warm = results
    return {"cold_seconds": seconds_for_all(cold), "warm_seconds": seconds_for_all(warm)}


LONG_PROMPT = 2048
LONGEST = LONG_PROMPT + 1
MOST_STREAMS = 32  # at once, in any case

CASES = (
    Case(
        "a",
        "32 requests at once, 256 in, 64 out",
        lambda ids: [ids.requests(32, 256, 64)],
        _throughput,
        (Metric("output_rate", "output, tok/s", True, 1),),
    ),
    Case(
        "b",
        "one stream, 32 in, 128 out",
        lambda ids: [ids.requests(1, 32, 128)],
        _one_stream,
        (
            Metric("itl_p50_ms", "ITL median, ms", False, 1),
            Metric("itl_mean_ms", "ITL mean, ms", False, 1),
            Metric("output_rate", "with prefill, tok/s", True, 1),
        ),
    ),
    Case(
        "c",
        "one prompt of 2,048 tokens",
        lambda ids: [ids.requests(1, LONG_PROMPT, 1)],
        _prefill,
        (Metric("prefill_rate", "prefill, tok/s", True, 0),),
    ),
    Case(
        "d",
        "16 streams at once, 128 in, 64 out",
        lambda ids: [ids.requests(16, 128, 64)],
        _streams,
        (
            Metric("output_rate", "output, tok/s", True, 1),
            Metric("ttft_p50_ms", "TTFT p50, ms", False, 0),
            Metric("ttft_p99_ms", "TTFT p99, ms", False, 0),
            Metric("itl_p50_ms", "ITL p50, ms", False, 1),
            Metric("itl_p99_ms", "ITL p99, ms", False, 1),
        ),
    ),
    Case(
        "e",
        "16 requests with a common prefix of 1,024 tokens and 32 of their own, 16 out",
        _shared_prefix,
        _cold_and_warm,
        (
            Metric("cold_seconds", "prefix never seen, s", False, 2),
            Metric("warm_seconds", "prefix seen, s", False, 2),
        ),
    ),
)

# Case f is a start, not batches of requests; its memory is also sampled under the load of case a.
START = "f"
LOAD = CASES[0]
START_TITLE = "process start to first token, and memory (PSS of all processes)"
START_METRICS = (
    Metric("start_seconds", "start to first token, s", False, 2),
    Metric("first_token_mb", "peak until the first token, MB", False, 0),
    Metric("loaded_mb", "peak with the work of case a, MB", False, 0),
)
LETTERS = (*(case.letter for case in CASES), START)


def rows(letters: Sequence[str]) -> list[tuple[str, str, Metric]]:
    """Return letter, title of the case, and metric of each row of the table."""
    found = [(case.letter, case.title, case.metrics) for case in CASES]
    found.append((START, START_TITLE, START_METRICS))
    return [
        (letter, title, metric)
        for letter, title, metrics in found
        if letter in letters
        for metric in metrics
    ]
