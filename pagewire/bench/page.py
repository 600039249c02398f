"""Draws the result of a load test as one HTML page without scripts or other files."""

import html
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from pagewire.bench.openai_stream import Timed
from pagewire.bench.report import Report, percentile, table

MOST_POINTS: Final = 200
"""Of a curve."""
_WIDTH, _HEIGHT, _MARGIN = 560, 270, 64
_TICKS = 5
_COLORS = ("#1f6fb4", "#c2571a", "#2d8a4e")

_PAGE: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>
body {{ font: 15px/1.4 system-ui, sans-serif; margin: 2em; color: #222; }}
pre {{ background: #f5f5f5; padding: 1em; display: inline-block; }}
svg {{ font-size: 12px; }} figure {{ display: inline-block; margin: 1em 1em 0 0; }}
</style></head><body><h1>{title}</h1><pre>{table}</pre><div>{figures}</div></body></html>
"""


@dataclass(frozen=True, slots=True)
class Curve:
    """A line of a chart: (x, y), x ascending."""

    name: str
    points: tuple[tuple[float, float], ...]


def page(title: str, report: Report, results: Sequence[Timed]) -> str:
    """Return the page: the table, percentiles, and the goodput by what is asked of a request."""
    values = durations(results)
    percentiles = [Curve(name, percentile_points(found)) for name, found in values.items()]
    goodput = [Curve(name, goodput_points(found, report.seconds)) for name, found in values.items()]
    figures = (
        chart("Percentiles", "percentile", "milliseconds", percentiles),
        chart("Goodput", "objective, milliseconds at most", "requests/s that meet it", goodput),
    )
    return _PAGE.format(
        title=html.escape(title), table=html.escape(table(report)), figures="".join(figures)
    )


def durations(results: Sequence[Timed]) -> dict[str, list[float]]:
    """Return milliseconds of the requests that succeeded, ascending; see Report for the names."""
    good = [one for one in results if one.error is None and one.chunks]
    kinds: dict[str, Callable[[Timed], float]] = {
        "TTFT": lambda one: one.chunks[0] - one.sent,
        "TPOT": lambda one: (one.ended - one.chunks[0]) / max(1, one.num_output_tokens - 1),
        "latency": lambda one: one.ended - one.sent,
    }
    return {name: sorted(1000 * kind(one) for one in good) for name, kind in kinds.items()}


def percentile_points(ordered: Sequence[float]) -> tuple[tuple[float, float], ...]:
    """Return (percentile, value) of sorted values."""
    ranks = (100 * place / MOST_POINTS for place in range(MOST_POINTS + 1))
    found = ((rank, percentile(ordered, rank)) for rank in ranks)
    return tuple((rank, value) for rank, value in found if value is not None)


def goodput_points(ordered: Sequence[float], seconds: float) -> tuple[tuple[float, float], ...]:
    """Return (objective, requests per second that meet it) of sorted values, from 0 on."""
    step = max(1, len(ordered) // MOST_POINTS)
    places = [*range(0, len(ordered), step), len(ordered) - 1] if ordered else []
    met = [(ordered[place], (place + 1) / seconds) for place in dict.fromkeys(places)]
    return ((0.0, 0.0), *met)


def chart(title: str, across: str, up: str, curves: Sequence[Curve]) -> str:
    """Return a figure with the curves, from 0 on both axes."""
    most_x = max((x for curve in curves for x, _ in curve.points), default=0.0) or 1.0
    most_y = max((y for curve in curves for _, y in curve.points), default=0.0) or 1.0

    def at(x: float, y: float) -> tuple[float, float]:
        left = _MARGIN + (_WIDTH - 2 * _MARGIN) * x / most_x
        top = _HEIGHT - _MARGIN - (_HEIGHT - 2 * _MARGIN) * y / most_y
        return left, top

    parts = [*_axes(across, up, most_x, most_y, at)]
    for number, curve in enumerate(curves):
        color = _COLORS[number % len(_COLORS)]
        points = " ".join(
            f"{left:.1f},{top:.1f}" for left, top in (at(*one) for one in curve.points)
        )
        parts.append(f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="2"/>')
        place = _MARGIN + 90 * number
        parts.append(f'<text x="{place}" y="20" fill="{color}">{html.escape(curve.name)}</text>')
    drawn = "".join(parts)
    size = f'width="{_WIDTH}" height="{_HEIGHT}" viewBox="0 0 {_WIDTH} {_HEIGHT}"'
    return f'<figure><h2>{title}</h2><svg {size} role="img">{drawn}</svg></figure>'


def _axes(
    across: str,
    up: str,
    most_x: float,
    most_y: float,
    at: Callable[[float, float], tuple[float, float]],
) -> list[str]:
    parts = []
    for tick in range(_TICKS + 1):
        x, y = most_x * tick / _TICKS, most_y * tick / _TICKS
        left, bottom = at(x, 0.0)
        parts.append(
            f'<text x="{left:.1f}" y="{bottom + 16:.1f}" text-anchor="middle">{x:.4g}</text>'
        )
        begin, top = at(0.0, y)
        parts.append(
            f'<text x="{begin - 6:.1f}" y="{top + 4:.1f}" text-anchor="end">{y:.4g}</text>'
        )
        end, _ = at(most_x, y)
        parts.append(f'<path d="M{begin:.1f} {top:.1f}H{end:.1f}" stroke="#ddd"/>')
    parts.append(f'<text x="{_WIDTH // 2}" y="{_HEIGHT - 12}" text-anchor="middle">{across}</text>')
    turned = f'transform="translate(12 {_HEIGHT // 2}) rotate(-90)" text-anchor="middle"'
    parts.append(f"<text {turned}>{up}</text>")
    return parts
