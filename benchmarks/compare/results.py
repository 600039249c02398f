"""What was measured, as plain data. Measures nothing and prints nothing."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Run:
    """One repeat of a case.

    Attributes:
        figures: By the names of the case's metrics; a case may leave some out of a run.
        foreign_share: Of the machine's CPU time meanwhile, from 0 to 1.
    """

    figures: dict[str, float]
    foreign_share: float


@dataclass(slots=True)
class ServerResult:
    """What came of a server.

    Attributes:
        label: Its column.
        settings: How it was set up.
        runs: By the letter of the case.
        failures: Why something was not measured, by the letter of the case; "" is the server as a
            whole.
    """

    label: str
    settings: str
    runs: dict[str, list[Run]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)

    def figures(self, letter: str, name: str) -> list[float]:
        """Return one figure of all runs of a case."""
        runs = self.runs.get(letter, [])
        return [run.figures[name] for run in runs if name in run.figures]

    def median(self, letter: str, name: str) -> float | None:
        """Return the median of a figure; None when it was not measured."""
        values = self.figures(letter, name)
        return statistics.median(values) if values else None

    def loud_cases(self, limit: float) -> dict[str, list[float]]:
        """Return the foreign shares of all runs of each case that has one above `limit`."""
        shares = {
            letter: [run.foreign_share for run in runs]
            for letter, runs in sorted(self.runs.items())
        }
        return {letter: found for letter, found in shares.items() if max(found) > limit}


def advantage(ours: float, theirs: float, *, more_is_better: bool) -> float:
    """Return how many times as good `ours` is as `theirs`: above 1 is better."""
    return ours / theirs if more_is_better else theirs / ours


def document(
    machine: str, options: dict[str, Any], servers: Sequence[ServerResult]
) -> dict[str, Any]:
    """Return everything as JSON's types."""
    return {
        "machine": machine,
        "options": options,
        "servers": [
            {
                "label": server.label,
                "settings": server.settings,
                "failures": server.failures,
                "cases": {
                    letter: [
                        {"figures": run.figures, "foreign_share": run.foreign_share} for run in runs
                    ]
                    for letter, runs in server.runs.items()
                },
            }
            for server in servers
        ],
    }
