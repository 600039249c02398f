"""Items, machines and clocks that are made up."""

from dataclasses import dataclass, field
from typing import Any

import pytest
from hour.items import PYTHON, Item
from hour.process import Ran
from hour.state import State

DEVICE = {"name": "NVIDIA H200", "capability": [9, 0], "gib": 139.0}
ENVIRONMENT = {
    "python": "3.12.3",
    "driver": "580",
    "cuda": "13.0",
    "device": DEVICE,
    "no_device": "",
    "no_compiler": "",
    "versions": {"torch": "2.11"},
    "missing_modules": [],
}


def item(name: str, *command: str, **settings: Any) -> Item:
    """An item of ten seconds."""
    settings = {"seconds": 10, "limit": 30, "shows": name, **settings}
    return Item(name=name, command=command or (PYTHON, "-c", ""), toy=(name,), **settings)


@dataclass
class FakeEdge:
    """Runs nothing: says what an item took and how it ended, and moves the clock."""

    seconds: dict[str, float] = field(default_factory=dict)
    codes: dict[str, int] = field(default_factory=dict)
    outputs: dict[str, str] = field(default_factory=dict)
    results: dict[str, Any] = field(default_factory=dict)
    probes: list[bool] = field(default_factory=list)
    ran: list[str] = field(default_factory=list)
    killed: list[str] = field(default_factory=list)
    time: float = 1000.0

    def run(self, item: Item, limit: float, token: str) -> tuple[Ran, Any]:
        self.ran.append(item.name)
        wanted = self.seconds.get(item.name, 10.0)
        took = min(wanted, limit)
        self.time += took
        code = -9 if took < wanted else self.codes.get(item.name, 0)
        ran = Ran(code, took < wanted, took, self.outputs.get(item.name, ""))
        return ran, self.results.get(item.name)

    def is_device_there(self) -> bool:
        self.ran.append("probe")
        return self.probes.pop(0) if self.probes else True

    def kill_all_of(self, token: str) -> int:
        self.killed.append(token)
        return 0

    def now(self) -> float:
        return self.time


@pytest.fixture
def state(tmp_path) -> State:
    return State(tmp_path / "state.jsonl")
