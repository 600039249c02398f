"""What has happened so far: a file of JSON lines, each on the disk before the next thing begins."""

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Record = dict[str, Any]

MOST_ATTEMPTS = 2
"""Of an item that was cut off, by the end of a call or because the whole harness was killed."""

CUT, PASSED, FAILED, CRASHED, HUNG = "cut off", "passed", "failed", "crashed", "hung"


@dataclass(slots=True)
class Facts:
    """What a state says.

    Attributes:
        ends: Item -> its last end.
        attempts: Item -> how often it was started.
        environment: Results of the item environment in the last call; None before.
        call_seconds: Seconds of each call.
        is_lost: The last call ended because the device did not answer.
        open_token: Names processes of an item that began and has no end; "" if there is none.
    """

    ends: dict[str, Record] = field(default_factory=dict)
    attempts: dict[str, int] = field(default_factory=dict)
    environment: Record | None = None
    call_seconds: list[float] = field(default_factory=list)
    is_lost: bool = False
    open_token: str = ""

    @property
    def used_seconds(self) -> float:
        """All calls together."""
        return sum(self.call_seconds)

    def outcome(self, name: str) -> str:
        """Return how an item ended for good; "" while it has not."""
        end = self.ends.get(name)
        if end is not None and end["outcome"] != CUT:
            return str(end["outcome"])
        return CUT if self.attempts.get(name, 0) >= MOST_ATTEMPTS else ""


def facts_of(records: Iterable[Record]) -> Facts:
    """Return what the lines of a state say together."""
    facts = Facts()
    for record in records:
        event = record["event"]
        if event == "call":
            facts.call_seconds.append(0.0)
            facts.is_lost = False
        elif event == "start":
            facts.attempts[record["item"]] = facts.attempts.get(record["item"], 0) + 1
            facts.open_token = record["token"]
        elif event == "end":
            facts.ends[record["item"]] = record
            facts.open_token = ""
            if record["item"] == "environment":
                facts.environment = record.get("result")
        elif event == "stop":
            facts.is_lost = bool(record["is_lost"])
        if facts.call_seconds:
            facts.call_seconds[-1] = max(facts.call_seconds[-1], float(record.get("elapsed", 0)))
    return facts


class State:
    """The file. A last line that was cut off by a kill is left out, and ended before the next."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.records: list[Record] = []
        text = path.read_text() if path.exists() else ""
        for line in text.splitlines():
            try:
                self.records.append(json.loads(line))
            except json.JSONDecodeError:
                continue
        self._needs_newline = bool(text) and not text.endswith("\n")

    @property
    def facts(self) -> Facts:
        """What it says now."""
        return facts_of(self.records)

    def append(self, record: Record) -> None:
        """Write a line; it is on the disk when this returns."""
        line = json.dumps(record) + "\n"
        with self.path.open("a") as file:
            file.write("\n" + line if self._needs_newline else line)
            file.flush()
            os.fsync(file.fileno())
        self._needs_newline = False
        self.records.append(record)
