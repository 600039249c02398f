"""Predictions as Markdown and as JSON, and beside what was seen."""

from collections.abc import Mapping, Sequence

from shapes import SHAPES

from prediction.cards import CARDS, Card
from prediction.costs import EXPECTED
from prediction.host_figures import HostFigures
from prediction.rows import Prediction
from prediction.step_time import Model

COLUMNS = ("row", "what", "unit", "limit", "expected", "least to most", "goal", "what decides it")
SEEN_COLUMNS = ("row", "what", "unit", "expected", "seen", "seen / expected", "in the range")
HOST_COLUMNS = (
    "step",
    "us",
    "of it a layer",
    "launches",
    "in the graph",
    "products",
    "operators",
    "copies",
    "host, ms",
    "device, ms",
)


def markdown(predictions: Mapping[str, Prediction]) -> str:
    """Return the table of a card."""
    lines = [
        (
            number,
            row.what,
            row.unit,
            shown(row.limit),
            shown(row.expected),
            f"{shown(row.low)} to {shown(row.high)}",
            shown(row.goal),
            row.note,
        )
        for number, row in predictions.items()
    ]
    return _table(COLUMNS, lines)


def all_cards(predictions: Mapping[str, Mapping[str, Prediction]]) -> str:
    """Return what is expected on each card, by its name: expected and limit."""
    names = list(predictions)
    first = predictions[names[0]]
    lines = [
        (
            number,
            f"{row.what}, {row.unit}",
            *(
                f"{shown(predictions[name][number].expected)} of "
                f"{shown(predictions[name][number].limit)}"
                for name in names
            ),
        )
        for number, row in first.items()
    ]
    return _table(("row", "expected of limit", *names), lines)


def against(predictions: Mapping[str, Prediction], seen: Mapping[str, float]) -> str:
    """Return what was expected against what was seen; rows that nobody saw are left out."""
    lines = []
    for number, row in predictions.items():
        if number not in seen:
            continue
        value = seen[number]
        ratio = shown(value / row.expected) if row.expected else "-"
        is_inside = "yes" if row.low <= value <= row.high else "no"
        lines.append(
            (number, row.what, row.unit, shown(row.expected), shown(value), ratio, is_inside)
        )
    return _table(SEEN_COLUMNS, lines)


def as_json(card: Card, predictions: Mapping[str, Prediction]) -> dict[str, object]:
    """Return the same for programs."""
    names = ("expected", "low", "high", "unit", "goal", "limit", "note", "what")
    rows = {
        number: {name: getattr(row, name) for name in names} for number, row in predictions.items()
    }
    return {"card": card.name, "rows": rows}


def source(card: Card, figures: HostFigures) -> str:
    """Return what the predictions were made from."""
    kind = "measured" if card.is_measured else "of the data sheet, cut as an H200's"
    return (
        f"{card.name}: copy {card.limits.copy / 1e12:.3g} TB/s, products "
        f"{card.limits.products / 1e12:.3g} TFLOP/s ({kind}). Host: {figures.machine}, "
        f"{figures.date}."
    )


def host_table(figures: HostFigures) -> str:
    """Return what was measured of the host, for the model that it was measured with, and what that
    makes on an H200."""
    model = Model(SHAPES["qwen3-0.6b"], CARDS["h200"], EXPECTED, figures)
    lines = [
        (
            name,
            shown(step.python_us),
            "-" if step.graphs else shown(step.layer_us),
            shown(step.launches),
            str(step.graph_launches) if step.graphs else "-",
            shown(step.products),
            shown(step.operators),
            shown(step.copies),
            *(shown(seconds * 1e3) for seconds in model.measured_seconds(name)),
        )
        for name, step in figures.steps.items()
    ]
    return _table(HOST_COLUMNS, lines)


def shown(number: float) -> str:
    """Return a number with three digits."""
    if number >= 1000:
        return f"{number:,.0f}"
    return f"{number:.3g}"


def _table(columns: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    head = ["| " + " | ".join(columns) + " |", "|" + " --- |" * len(columns)]
    return "\n".join([*head, *("| " + " | ".join(line) + " |" for line in lines)])
