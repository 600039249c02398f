"""Random histories of a group: who asks, who dies, which links are cut, and when. A history follows
from its seed and can be told again."""

import asyncio
import hashlib
import os
import random
from typing import Any
from unittest import mock

from simulation.coverage import Coverage
from simulation.group.readers import GroupReader
from simulation.group.virtual_loop import run_virtually
from simulation.group.world import (
    NAMES,
    GroupConfiguration,
    GroupViolation,
    GroupWorld,
)
from simulation.history import Failure

from pagewire_frontend.http.kept_streams import pins

MAX_EVENTS = 60
QUIET_SECONDS = 240.0
WEIGHTS = {"ask": 4, "kill": 3, "start": 3, "cut": 1, "heal": 2, "probe": 2, "pass": 8}

GroupEvent = tuple[str, dict[str, Any]]


def configuration_of(seed: int) -> GroupConfiguration:
    """Return the settings of a seed."""
    draw = random.Random(f"configuration {seed}")
    return GroupConfiguration(
        seed=seed,
        num_frontends=draw.choice([2, 3, 3, 4]),
        num_replicas=draw.choice([1, 1, 2]),
        is_exact=draw.random() < 0.7,
        has_cuts=draw.random() < 0.3,
        max_deaths=draw.choice([0, 1, 1, 3, 10]),
    )


def events_of(seed: int, num_events: int) -> list[GroupEvent]:
    """Return the events of a seed."""
    draw = random.Random(f"events {seed}")
    kinds = draw.choices(list(WEIGHTS), list(WEIGHTS.values()), k=min(num_events, MAX_EVENTS))
    return [("ask", _asked(draw)), *((kind, _details(draw, kind)) for kind in kinds)]


def _details(draw: random.Random, kind: str) -> dict[str, Any]:
    match kind:
        case "ask":
            return _asked(draw)
        case "pass":
            return {"seconds": draw.choice([0.01, 0.05, 0.2, 0.5, 2.0, 8.0])}
        case _:
            one, other = draw.sample(NAMES, 2)
            return {"one": one, "other": other}


def _asked(draw: random.Random) -> dict[str, Any]:
    key = f"key {draw.randrange(3)}" if draw.random() < 0.4 else None
    # The request of a key is always the same.
    number = draw.randrange(10**6) if key is None else int(key[-1])
    return {
        "key": key,
        "tenant": number % 2,
        "seed": number if number % 3 else None,
        "num_tokens": 5 + number % 60,
        "num_choices": 1 + number % 3,
        "prompt": [number, 7],
    }


def run(
    configuration: GroupConfiguration, events: list[GroupEvent], coverage: Coverage
) -> tuple[Failure | None, str]:
    """Run a history; return what failed, and a digest of all events that clients have read."""
    draw, digest = random.Random(configuration.seed), hashlib.blake2b(digest_size=16)
    failures: list[Failure] = []

    async def work() -> None:
        world = GroupWorld(configuration)
        number = 0
        try:
            readers: list[GroupReader] = []
            for kind, details in events:
                number += 1
                coverage.events[kind] += 1
                await _act(world, readers, kind, details)
                _raise_failures(world, readers)
            await _quiet(world, readers)
        except GroupViolation as violation:
            failures.append(Failure(violation.invariant, str(violation), number))
        except Exception as error:  # noqa: BLE001 - a history that crashes has failed
            failures.append(Failure("no_crash", repr(error), number))
        coverage.invariants.update(world.counts)
        coverage.facts["frontends killed"] += world.num_deaths
        coverage.facts["streams"] += len(world.known)
        coverage.facts["streams made by two that were cut"] += len(world.twice)
        for stream_id, known in world.known.items():
            digest.update(stream_id.encode() + b"".join(known.frames))

    loop_time = mock.Mock(time=lambda: asyncio.get_running_loop().time())
    with (
        mock.patch.object(os, "urandom", draw.randbytes),
        mock.patch.object(pins, "time", loop_time),
    ):
        run_virtually(work())
    return (failures[0] if failures else None), digest.hexdigest()


async def _act(
    world: GroupWorld, readers: list[GroupReader], kind: str, details: dict[str, Any]
) -> None:
    names = [name for name in (details.get("one"), details.get("other")) if name in world.names]
    match kind:
        case "ask":
            readers.append(GroupReader(world, details))
        case "kill" if names:
            world.kill(names[0])
        case "start" if names:
            world.start(names[0])
        case "cut" if len(names) == 2:
            world.cut(*names)
        case "heal":
            world.heal()
        case "probe" if readers:
            await world.draw.choice(readers).probe()
        case "pass":
            await asyncio.sleep(details["seconds"])
        case _:
            pass


async def _quiet(world: GroupWorld, readers: list[GroupReader]) -> None:
    """Heal everything, and require that all streams come to their end."""
    world.heal()
    for name in world.names:
        world.start(name)
    end = asyncio.get_running_loop().time() + QUIET_SECONDS
    while not all(reader.is_over and reader.task.done() for reader in readers):
        _raise_failures(world, readers)
        left = [reader._stream_id for reader in readers if not reader.task.done()]
        in_time = asyncio.get_running_loop().time() < end
        world.require("streams_end", in_time, f"{left} do not end")
        await asyncio.sleep(0.25)
    _raise_failures(world, readers)


def _raise_failures(world: GroupWorld, readers: list[GroupReader]) -> None:
    """Raise what failed in a task of a client or of the world."""
    if world.violation is not None:
        raise world.violation
    for reader in readers:
        if reader.task.done():
            reader.task.result()
