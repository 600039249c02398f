"""Makes a failing history small, and keeps it as a fixture. Runs histories, judges only whether the
same invariant fails."""

import json
from dataclasses import asdict
from pathlib import Path

from simulation.configuration import Configuration
from simulation.coverage import Coverage
from simulation.events import Event
from simulation.history import run

SEEDS = Path(__file__).parent / "seeds"
MAX_RUNS = 300


def shrink(
    configuration: Configuration, events: list[Event], invariant: str, *, max_runs: int = MAX_RUNS
) -> list[Event]:
    """Drop ever smaller runs of events while `invariant` still fails."""
    num_runs = 0
    size = max(1, len(events) // 2)
    while num_runs < max_runs:
        begin, is_smaller = 0, False
        while begin < len(events) and num_runs < max_runs:
            candidate = events[:begin] + events[begin + size :]
            num_runs += 1
            failure, _ = run(configuration, candidate, Coverage())
            if failure is not None and failure.invariant == invariant:
                # What comes after the failing event is not needed either.
                events, is_smaller = candidate[: failure.event_number + 1], True
            else:
                begin += size
        if size == 1 and not is_smaller:
            break
        size = max(1, size // 2)
    return events


def save(path: Path, configuration: Configuration, events: list[Event], note: str) -> None:
    """Write a fixture."""
    path.write_text(
        json.dumps({"note": note, "configuration": asdict(configuration), "events": events})
        .replace('["', '\n["')
        .replace('}, "events"', '},\n"events"')
        + "\n"
    )


def load(path: Path) -> tuple[Configuration, list[Event], str]:
    """Read a fixture."""
    data = json.loads(path.read_text())
    events = [(kind, a, b, c) for kind, a, b, c in data["events"]]
    return Configuration(**data["configuration"]), events, data["note"]
