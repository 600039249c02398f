"""Computes percentiles and rates of a load test, and formats them as a table."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from pagewire.bench.openai_stream import Timed

PERCENTILES = (50, 90, 99)


@dataclass(frozen=True, slots=True)
class Spread:
    """Mean and percentiles of a duration in seconds; None when nothing was measured."""

    mean: float | None
    percentiles: dict[str, float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Result of a load test.

    Attributes:
        ttft: Time to the first chunk with text (TTFT).
        itl: Time between chunks with text (ITL); a chunk may have several tokens.
        tpot: (latency - TTFT) / (tokens - 1) per request (TPOT).
        latency: Time from sending to the end of the stream.
    """

    num_requests: int
    num_failed: int
    seconds: float
    num_prompt_tokens: int
    num_output_tokens: int
    requests_per_second: float
    output_tokens_per_second: float
    total_tokens_per_second: float
    ttft: Spread
    itl: Spread
    tpot: Spread
    latency: Spread
    errors: tuple[str, ...]


def make_report(results: Sequence[Timed], seconds: float) -> Report:
    """Return the report of requests that took `seconds` in all."""
    good = [result for result in results if result.error is None]
    num_prompt = sum(result.num_prompt_tokens for result in good)
    num_output = sum(result.num_output_tokens for result in good)
    started = [result for result in good if result.chunks]
    return Report(
        num_requests=len(results),
        num_failed=len(results) - len(good),
        seconds=seconds,
        num_prompt_tokens=num_prompt,
        num_output_tokens=num_output,
        requests_per_second=len(good) / seconds,
        output_tokens_per_second=num_output / seconds,
        total_tokens_per_second=(num_prompt + num_output) / seconds,
        ttft=spread([result.chunks[0] - result.sent for result in started]),
        itl=spread([gap for result in started for gap in _gaps(result.chunks)]),
        tpot=spread(
            [
                (result.ended - result.chunks[0]) / (result.num_output_tokens - 1)
                for result in started
                if result.num_output_tokens > 1
            ]
        ),
        latency=spread([result.ended - result.sent for result in good]),
        errors=tuple(dict.fromkeys(result.error for result in results if result.error))[:5],
    )


def _gaps(times: Sequence[float]) -> list[float]:
    return [after - before for before, after in itertools.pairwise(times)]


def spread(values: Sequence[float]) -> Spread:
    """Return mean and percentiles, linear between neighbours as numpy's default."""
    ordered = sorted(values)
    mean = sum(ordered) / len(ordered) if ordered else None
    return Spread(mean, {f"p{rank}": percentile(ordered, rank) for rank in PERCENTILES})


def percentile(ordered: Sequence[float], rank: float) -> float | None:
    """Return the value at `rank` percent of sorted values; None without values."""
    if not ordered:
        return None
    place = (len(ordered) - 1) * rank / 100
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def table(report: Report) -> str:
    """Return the report as text."""
    lines = [
        f"requests          {report.num_requests} ({report.num_failed} failed)",
        f"duration          {report.seconds:.2f} s",
        f"prompt tokens     {report.num_prompt_tokens}",
        f"output tokens     {report.num_output_tokens}",
        f"requests/s        {report.requests_per_second:.2f}",
        f"output tokens/s   {report.output_tokens_per_second:.1f}",
        f"total tokens/s    {report.total_tokens_per_second:.1f}",
        "",
        f"{'milliseconds':<16}{'mean':>10}" + "".join(f"{f'p{r}':>10}" for r in PERCENTILES),
    ]
    for name, values in (
        ("TTFT", report.ttft),
        ("ITL", report.itl),
        ("TPOT", report.tpot),
        ("latency", report.latency),
    ):
        cells = [values.mean, *values.percentiles.values()]
        lines.append(f"{name:<16}" + "".join(_cell(value) for value in cells))
    lines += [f"error: {error}" for error in report.errors]
    return "\n".join(lines)


def _cell(seconds: float | None) -> str:
    return f"{'-':>10}" if seconds is None else f"{seconds * 1000:>10.2f}"
