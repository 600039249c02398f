"""Runs faults one after another under steady load, and judges every stream."""

import asyncio
import itertools
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from chaos.clients import Asked, Clients, Reading, requests_of
from chaos.deployment import ADAPTER, Deployment
from chaos.faults import strike
from chaos.outcomes import Cell, Outcomes

NUM_STREAMS: Final = 6
NUM_SEEDS: Final = 2
LEAST_RUNNING: Final = 4
FAULTS_PER_AUDIT: Final = 20
END_SECONDS: Final = 150.0


def verdict(found: Sequence[Any], expected: Sequence[Any]) -> str:
    """Return what is wrong with the events of a whole stream; empty for nothing."""
    if found == expected:
        return ""
    if len(found) < len(expected):
        return "lost"
    return "doubled" if len(found) > len(expected) else "changed"


@dataclass
class Run:
    """One run of faults.

    Attributes:
        problems: What went wrong, for a person.
    """

    deployment: Deployment
    outcomes: Outcomes
    dice: random.Random
    clients: Clients
    problems: list[str] = field(default_factory=list)
    _expected: dict[str, list[Any]] = field(default_factory=dict)
    _running: set[int] = field(default_factory=set)
    _readings: dict[int, Reading] = field(default_factory=dict)
    _may_begin: asyncio.Event = field(default_factory=asyncio.Event)
    _cell: Cell | None = None
    _number: int = 0

    async def learn(self) -> list[Asked]:
        """Read every stream undisturbed; return their requests."""
        cluster = self.deployment.cluster
        adapter = ADAPTER if cluster.local.config.enable_lora else cluster.model
        asked = requests_of(cluster.model, adapter, NUM_SEEDS)
        for one in asked:
            reading = await self.clients.read(one)
            assert not reading.error, f"{one.name} undisturbed: {reading.error}"
            self._expected[one.name] = reading.events
        return asked

    async def inject(self, cells: Sequence[Cell]) -> None:
        """Inject a fault of each cell in turn."""
        asked = await self.learn()
        self._may_begin.set()
        loads = [asyncio.create_task(self._load(asked)) for _ in range(NUM_STREAMS)]
        try:
            for count, cell in enumerate(cells, 1):
                await self._inject(cell)
                if count % FAULTS_PER_AUDIT == 0 or count == len(cells):
                    await self._audit()
                    print(f"{count} faults, {len(self.problems)} problems", file=sys.stderr)
        finally:
            for load in loads:
                load.cancel()
            await asyncio.gather(*loads, return_exceptions=True)

    async def _load(self, asked: Sequence[Asked]) -> None:
        while True:
            await self._may_begin.wait()
            self._number += 1
            number, reading = self._number, Reading(self.dice.choice(asked))
            self._readings[number] = reading
            self._running.add(number)
            await self.clients.read(reading.asked, reading)
            self._running.discard(number)
            del self._readings[number]
            self._judge(reading)

    def _judge(self, reading: Reading) -> None:
        if self._cell is None:
            return
        outcome = self.outcomes.of(self._cell)
        outcome.streams += 1
        if reading.error:
            outcome.failed += 1
            self._note(f"{reading.asked.name} failed: {reading.error[:300]}")
            return
        wrong = verdict(reading.events, self._expected[reading.asked.name])
        if wrong:
            setattr(outcome, wrong, getattr(outcome, wrong) + 1)
            where = _first_difference(reading.events, self._expected[reading.asked.name])
            self._note(f"{reading.asked.name}: {wrong}, {where}")

    def _note(self, text: str) -> None:
        where = " ".join(self._cell or ())
        self.problems.append(f"{where}: {text}")
        print(self.problems[-1], file=sys.stderr, flush=True)

    async def _inject(self, cell: Cell) -> None:
        await self._until(lambda: self._num_flowing() >= LEAST_RUNNING)
        await asyncio.sleep(self.dice.uniform(0.0, 0.4))
        self._cell = cell
        struck, began = {n: self._readings[n] for n in self._running}, time.monotonic()
        await strike(self.deployment, cell, self.dice)
        await self._until(lambda: not self._running & struck.keys())
        outcome = self.outcomes.of(cell)
        outcome.faults += 1
        outcome.gaps.update(_gap(reading, began) for reading in struck.values())
        await self.deployment.settle()

    def _num_flowing(self) -> int:
        return sum(len(self._readings[number].events) > 1 for number in self._running)

    async def _audit(self) -> None:
        self._may_begin.clear()
        await self._until(lambda: not self._running)
        try:
            await self.deployment.check_clean()
        except AssertionError as error:
            self._note(f"the audit is not clean: {error}")
        self._may_begin.set()

    async def _until(self, condition: Any) -> None:
        async with asyncio.timeout(END_SECONDS):
            while not condition():
                await asyncio.sleep(0.02)


def _first_difference(found: Sequence[Any], expected: Sequence[Any]) -> str:
    for index, (one, other) in enumerate(itertools.zip_longest(found, expected)):
        if one != other:
            return f"at event {index} of {len(expected)}: {str(one)[:400]} for {str(other)[:400]}"
    return ""


def _gap(reading: Reading, began: float) -> int:
    """Return the longest wait for an event from a moment on, in hundredths of a second."""
    times = [began, *(one for one in reading.times if one > began)]
    waits = [after - before for before, after in itertools.pairwise(times)]
    return round(100 * max(waits, default=0.0))
