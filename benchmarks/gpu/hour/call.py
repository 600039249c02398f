"""One call: items one after the other, until none is left, none fits, or the device is lost."""

import re
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from hour.choice import next_item, standings
from hour.items import Item
from hour.process import Ran
from hour.state import CRASHED, CUT, FAILED, HUNG, PASSED, Facts, Record, State

NUM_PROBES = 2
PROBE_SECONDS = 40.0
"""Most that one takes."""


class Edge(Protocol):
    """What a call needs of the machine."""

    def run(self, item: Item, limit: float, token: str) -> tuple[Ran, Record | None]:
        """Run an item; return how it ended, and its results if it wrote any."""

    def is_device_there(self) -> bool:
        """Ask the device for something small, in a process of its own."""

    def kill_all_of(self, token: str) -> int:
        """Kill what is left of an item of an earlier call; return how many processes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Seconds of a call, and of all calls together."""

    call_seconds: float
    all_seconds: float


def run_call(
    items: Sequence[Item],
    state: State,
    budget: Budget,
    edge: Edge,
    *,
    now: Callable[[], float] = time.monotonic,
    after_item: Callable[[], None] = lambda: None,
    is_rehearsal: bool = False,
) -> str:
    """Run what fits, and return why the call ended.

    Args:
        items: In the order of their value.
        state: Gets a line before and after each.
        budget: How long.
        edge: Runs processes.
        now: Seconds of a clock.
        after_item: Called after each, to write a report.
        is_rehearsal: Nothing is asked of the machine.
    """
    began = now()
    earlier = state.facts
    if earlier.open_token:
        edge.kill_all_of(earlier.open_token)
    left = min(budget.call_seconds, budget.all_seconds - earlier.used_seconds)
    state.append({"event": "call", "at": time.time(), "elapsed": 0.0})

    def stop(why: str, *, is_lost: bool = False) -> str:
        state.append({"event": "stop", "why": why, "is_lost": is_lost, "elapsed": now() - began})
        after_item()
        return why

    if left <= 0:
        return stop(f"all {budget.all_seconds / 60:.0f} minutes are used")
    if earlier.is_lost and not _is_there(edge):
        return stop("the device is still lost", is_lost=True)
    due = [item for item in items if item.is_in_every_call]
    while True:
        remaining = left - (now() - began)
        facts = state.facts
        item = due.pop(0) if due else next_item(items, facts, remaining, is_rehearsal=is_rehearsal)
        if item is None:
            return stop(_why_none(items, facts, remaining, is_rehearsal=is_rehearsal))
        outcome = _run_item(item, state, edge, remaining, lambda: now() - began)
        after_item()
        if outcome == PASSED:
            continue
        if left - (now() - began) < NUM_PROBES * PROBE_SECONDS:
            # A hanging device would take more than the call has; the next one asks first.
            return stop(f"no time is left to ask the device after {item.name}", is_lost=True)
        if not _is_there(edge):
            return stop(f"the device does not answer after {item.name}", is_lost=True)


def _run_item(
    item: Item, state: State, edge: Edge, remaining: float, elapsed: Callable[[], float]
) -> str:
    token = uuid.uuid4().hex
    state.append({"event": "start", "item": item.name, "token": token, "elapsed": elapsed()})
    limit = min(item.limit, remaining)
    ran, result = edge.run(item, limit, token)
    outcome = outcome_of(item, ran, is_cut=limit < item.limit)
    state.append(
        {
            "event": "end",
            "item": item.name,
            "outcome": outcome,
            "code": ran.code,
            "seconds": round(ran.seconds, 2),
            "limit": limit,
            "at": time.time(),
            "elapsed": elapsed(),
            "output": ran.output,
            "result": result,
            **(counted_tests(ran.output) if item.is_pytest else {}),
        }
    )
    return outcome


def _is_there(edge: Edge) -> bool:
    return any(edge.is_device_there() for _ in range(NUM_PROBES))


def _why_none(items: Sequence[Item], facts: Facts, remaining: float, *, is_rehearsal: bool) -> str:
    waiting = [
        name
        for name, standing in standings(items, facts, is_rehearsal=is_rehearsal).items()
        if standing.is_ready
    ]
    if not waiting:
        return "nothing is left that can run"
    return f"none of the {len(waiting)} items left fits in {remaining:.0f} s"


def outcome_of(item: Item, ran: Ran, *, is_cut: bool) -> str:
    """Return how an item ended; `is_cut`: its limit was what the call had left."""
    if ran.is_over_limit:
        return CUT if is_cut else HUNG
    if ran.code < 0:
        return CRASHED
    if ran.code > 0:
        return FAILED
    if item.is_pytest and "--collect-only" not in item.command:
        # Tests that are skipped prove nothing.
        return PASSED if counted_tests(ran.output)["tests"].get("passed") else FAILED
    return PASSED


def counted_tests(output: str) -> Record:
    """Return what pytest printed: counts, names of failed tests, and the last one it began."""
    counts = {}
    summary = re.findall(r"^=+ (.*) in [\d.]+s.*=+$", output, re.MULTILINE)
    if summary:
        for number, word in re.findall(r"(\d+) (\w+)", summary[-1]):
            counts[word] = int(number)
    failed = re.findall(r"^(?:FAILED|ERROR) (tests/\S+?::.+?)(?: - .*)?$", output, re.MULTILINE)
    begun = re.findall(r"^(tests/\S+?::\S+)", output, re.MULTILINE)
    return {
        "tests": counts,
        "failed_tests": list(dict.fromkeys(failed)),
        "last_test": begun[-1] if begun else None,
    }
