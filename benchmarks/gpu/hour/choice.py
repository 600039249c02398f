"""What to run next, and why something does not run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hour.items import Item
from hour.state import PASSED, Facts, Record

DONE, WAITING, BLOCKED, IMPOSSIBLE, NEEDLESS = (
    "done",
    "waiting",
    "blocked",
    "impossible",
    "not needed",
)


@dataclass(frozen=True, slots=True)
class Standing:
    """Where an item stands; `why` says what keeps it from running, `is_ready` whether it may."""

    kind: str
    why: str = ""
    is_ready: bool = False


def lacks(item: Item, environment: Record) -> str:
    """Return what a machine does not have for an item; "" if it has all."""
    missing = sorted(item.modules & set(environment["missing_modules"]))
    if missing:
        return f"not importable: {', '.join(missing)}"
    device = environment["device"]
    if item.gib and device is None:
        return f"no CUDA device: {environment['no_device']}"
    if item.has_kernels and environment["no_compiler"]:
        return f"Triton cannot compile: {environment['no_compiler']}"
    if device is not None and tuple(device["capability"]) < item.capability:
        return f"compute capability {device['capability']}, needs {list(item.capability)}"
    if device is not None and device["gib"] < item.gib:
        return f"{device['gib']:.0f} GiB of memory, needs {item.gib}"
    return ""


def standings(
    items: Sequence[Item], facts: Facts, *, is_rehearsal: bool = False
) -> dict[str, Standing]:
    """Return where every item stands; what an item needs comes before it in `items`.

    In a rehearsal nothing is asked of the machine, and what stands in for another item runs.
    """
    found: dict[str, Standing] = {}
    for item in items:
        found[item.name] = _standing(item, facts, found, is_rehearsal=is_rehearsal)
    return found


def _standing(
    item: Item, facts: Facts, before: Mapping[str, Standing], *, is_rehearsal: bool
) -> Standing:
    outcome = facts.outcome(item.name)
    if outcome:
        return Standing(DONE, outcome)
    if not is_rehearsal and facts.environment is not None:
        reason = lacks(item, facts.environment)
        if reason:
            return Standing(IMPOSSIBLE, reason)
    for need in item.needs:
        standing = before[need]
        if standing.kind == DONE and standing.why != PASSED:
            return Standing(BLOCKED, f"{need} {standing.why}")
        if standing.kind in {BLOCKED, IMPOSSIBLE, NEEDLESS}:
            return Standing(BLOCKED, f"{need} is {standing.kind}: {standing.why}")
    is_ready = all(before[need].kind == DONE for need in item.needs)
    if item.instead_of and not is_rehearsal:
        first = before[item.instead_of]
        if first.kind == DONE and first.why == PASSED:
            return Standing(NEEDLESS, f"{item.instead_of} passed")
        is_ready = is_ready and first.kind != WAITING
    return Standing(WAITING, "", is_ready)


def next_item(
    items: Sequence[Item], facts: Facts, remaining: float, *, is_rehearsal: bool = False
) -> Item | None:
    """Return the first item that may run and is expected to end in `remaining` seconds."""
    standing = standings(items, facts, is_rehearsal=is_rehearsal)
    return next(
        (item for item in items if standing[item.name].is_ready and item.seconds <= remaining),
        None,
    )


def blocked_by(name: str, items: Sequence[Item]) -> list[str]:
    """Return the items that need one, in the end."""
    lost = {name}
    for item in items:
        if lost & set(item.needs):
            lost.add(item.name)
    return [item.name for item in items if item.name in lost and item.name != name]
