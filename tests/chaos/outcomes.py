"""Outcomes of faults, which accumulate over runs in a file, and the table of them."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

Cell = tuple[str, str]
HEAD = (
    "| process or link | fault | faults | streams | failed | lost | doubled | changed | gap p50 |"
    " p99 |"
)


@dataclass(slots=True)
class Outcome:
    """What came of the faults of one cell.

    Attributes:
        streams: Streams that ran when a fault was injected, or began before it was healed.
        failed, lost, doubled, changed: Of these: ended with an error; with events missing, more,
            or other ones than undisturbed.
        gaps: Longest waits for an event of the streams that ran, in hundredths of a second, and
            how many there were.
    """

    faults: int = 0
    streams: int = 0
    failed: int = 0
    lost: int = 0
    doubled: int = 0
    changed: int = 0
    gaps: Counter[int] = field(default_factory=Counter)

    @property
    def is_clean(self) -> bool:
        """Whether every stream was as undisturbed."""
        return not (self.failed or self.lost or self.doubled or self.changed)

    def gap(self, share: float) -> float:
        """Return the gap, in seconds, that this share of the streams does not exceed."""
        wanted, seen = share * self.gaps.total(), 0
        for hundredths in sorted(self.gaps):
            seen += self.gaps[hundredths]
            if seen >= wanted:
                return hundredths / 100
        return 0.0


@dataclass(slots=True)
class Outcomes:
    """Outcomes by cell, and the runs that they come from."""

    runs: list[dict[str, Any]] = field(default_factory=list)
    cells: dict[Cell, Outcome] = field(default_factory=dict)

    def of(self, cell: Cell) -> Outcome:
        """Return the outcome of a cell."""
        return self.cells.setdefault(cell, Outcome())


def read_outcomes(path: Path) -> Outcomes:
    """Return what a file holds; nothing where it is missing."""
    if not path.exists():
        return Outcomes()
    data = json.loads(path.read_text())
    cells = {}
    for entry in data["cells"]:
        process, fault = entry.pop("process"), entry.pop("fault")
        gaps = Counter({int(key): count for key, count in entry.pop("gaps").items()})
        cells[process, fault] = Outcome(**entry, gaps=gaps)
    return Outcomes(data["runs"], cells)


def write_outcomes(path: Path, outcomes: Outcomes) -> None:
    """Write all of it; a line per cell, so that changes are easy to see."""
    cells = [
        json.dumps({"process": cell[0], "fault": cell[1], **_plain(outcome)})
        for cell, outcome in sorted(outcomes.cells.items())
    ]
    runs = ",\n".join(json.dumps(run) for run in outcomes.runs)
    text = ",\n".join(cells)
    path.write_text(f'{{"runs": [\n{runs}\n], "cells": [\n{text}\n]}}\n')


def _plain(outcome: Outcome) -> dict[str, Any]:
    found = {one.name: getattr(outcome, one.name) for one in fields(outcome)}
    return {**found, "gaps": dict(sorted(outcome.gaps.items()))}


def table(outcomes: Outcomes) -> str:
    """Return the table in Markdown."""
    lines = [HEAD, "| --- " * HEAD.count(" | ") + "| --- |"]
    total = Outcome()
    for (process, fault), one in sorted(outcomes.cells.items()):
        lines.append(_row(process, fault, one))
        for name in ("faults", "streams", "failed", "lost", "doubled", "changed"):
            setattr(total, name, getattr(total, name) + getattr(one, name))
        total.gaps.update(one.gaps)
    return "\n".join([*lines, _row("all", "", total)])


def _row(process: str, fault: str, one: Outcome) -> str:
    counts: Sequence[int] = (
        one.faults,
        one.streams,
        one.failed,
        one.lost,
        one.doubled,
        one.changed,
    )
    gaps = f"{one.gap(0.5):.2f} s | {one.gap(0.99):.2f} s"
    return f"| {process} | {fault} | {' | '.join(map(str, counts))} | {gaps} |"
