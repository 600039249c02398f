"""The faults: each is injected, lasts for a while, and is healed."""

import asyncio
import contextlib
import os
import random
import resource
import signal
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Final

from chaos.deployment import Deployment
from support.processes.processes import is_running

HELD_SECONDS: Final = (0.3, 3.5)
CLOCK_SECONDS: Final = (-4000.0, -20.0, 20.0, 4000.0)
DELAY_SECONDS: Final = 0.05
FILE_SECONDS: Final = 0.2
SPARE_BYTES: Final = 256 << 10
"""What a process may still map that is short of memory."""
FLIP_BYTES: Final = 400_000
CUT_BYTES: Final = 20_000
RECOVERY_SECONDS: Final = (0.02, 0.8)

Fault = Callable[[Deployment, str, random.Random], Awaitable[None]]
"""Injects, waits and heals. The text is the kind of the process, or of the link."""


def _victim(deployment: Deployment, process: str, dice: random.Random) -> int:
    pids = deployment.pids(process)
    return pids[dice.choice(sorted(pids))]


async def kill(deployment: Deployment, process: str, dice: random.Random) -> None:
    """SIGKILL."""
    os.kill(_victim(deployment, process, dice), signal.SIGKILL)


async def terminate(deployment: Deployment, process: str, dice: random.Random) -> None:
    """SIGTERM: it drains, ends, and is started again."""
    pid = _victim(deployment, process, dice)
    os.kill(pid, signal.SIGTERM)
    while is_running(pid):
        await asyncio.sleep(0.02)


async def stop(deployment: Deployment, process: str, dice: random.Random) -> None:
    """SIGSTOP, and SIGCONT later unless it has been replaced."""
    pid = _victim(deployment, process, dice)
    os.kill(pid, signal.SIGSTOP)
    await asyncio.sleep(dice.uniform(*HELD_SECONDS))
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


@contextlib.contextmanager
def _limited(pid: int, kind: int, value: int) -> Iterator[None]:
    before = resource.prlimit(pid, kind)
    resource.prlimit(pid, kind, (value, before[1]))
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(pid, kind, before)


async def no_descriptors(deployment: Deployment, process: str, dice: random.Random) -> None:
    """No file, socket or pipe can be opened."""
    pid = _victim(deployment, process, dice)
    highest = max(map(int, os.listdir(f"/proc/{pid}/fd")))
    with _limited(pid, resource.RLIMIT_NOFILE, highest + 1):
        await asyncio.sleep(dice.uniform(*HELD_SECONDS))


async def no_memory(deployment: Deployment, process: str, dice: random.Random) -> None:
    """Hardly any memory can be mapped."""
    pid = _victim(deployment, process, dice)
    with _limited(pid, resource.RLIMIT_AS, _mapped_bytes(pid) + SPARE_BYTES):
        await asyncio.sleep(dice.uniform(*HELD_SECONDS))


def _mapped_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * resource.getpagesize()


async def clock_jump(deployment: Deployment, process: str, dice: random.Random) -> None:
    """The wall clock is off, and is right again later."""
    pid = _victim(deployment, process, dice)
    deployment.preloaded.jump(pid, dice.choice(CLOCK_SECONDS))
    await asyncio.sleep(dice.uniform(*HELD_SECONDS))
    deployment.preloaded.jump(pid, 0.0)


async def disk_full(deployment: Deployment, process: str, dice: random.Random) -> None:
    """No byte fits on the disk of the store."""
    filler = deployment.disk / "filler"
    with filler.open("wb") as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(1 << 20))
            file.flush()
    await asyncio.sleep(dice.uniform(*HELD_SECONDS))
    filler.unlink()


async def slow_disk(deployment: Deployment, process: str, dice: random.Random) -> None:
    """Each read and write of a file takes long."""
    pid = _victim(deployment, process, dice)
    deployment.preloaded.slow_files(pid, FILE_SECONDS)
    await asyncio.sleep(dice.uniform(*HELD_SECONDS))
    deployment.preloaded.slow_files(pid, 0.0)


async def redis_kill(deployment: Deployment, process: str, dice: random.Random) -> None:
    """Redis dies, and comes back empty."""
    deployment.redis.kill()
    await asyncio.sleep(dice.uniform(*HELD_SECONDS))
    deployment.redis.start()


async def redis_stop(deployment: Deployment, process: str, dice: random.Random) -> None:
    """Redis hangs."""
    deployment.redis.stop()
    await asyncio.sleep(dice.uniform(*HELD_SECONDS))
    deployment.redis.go_on()


def on_link(mode: str, value: Callable[[random.Random], float] = lambda _: 0.0) -> Fault:
    """Return a fault of one link of a kind, as "worker>scheduler"; see link_process.py."""

    async def fault(deployment: Deployment, process: str, dice: random.Random) -> None:
        active = deployment.active_scheduler()
        links = [one for one in deployment.links.names if _kind(one, active) == process]
        name = dice.choice(links)
        deployment.links.set(name, mode, value(dice))
        await asyncio.sleep(dice.uniform(*HELD_SECONDS))
        deployment.links.set(name, "pass")

    return fault


def _kind(link: str, active_scheduler: str) -> str:
    source, _, target = link.partition(">")
    if target.startswith("scheduler"):
        target = "scheduler" if target == active_scheduler else "standby"
    elif target != "kvstore":
        target = "frontend"  # under the name that it has in its group
    return f"{source.partition('-')[0]}>{target}"


PROCESS_FAULTS: Final[dict[str, Fault]] = {
    "kill -9": kill,
    "STOP": stop,
    "TERM": terminate,
    "no descriptors": no_descriptors,
    "no memory": no_memory,
    "clock": clock_jump,
}
LINK_FAULTS: Final[dict[str, Fault]] = {
    "partition": on_link("hold"),
    "one way": on_link("hold_there"),
    "other way": on_link("hold_back"),
    "delay": on_link("delay", lambda _: DELAY_SECONDS),
    "loss": on_link("loss"),
    "refused": on_link("refuse"),
    "cut": on_link("cut", lambda dice: dice.randrange(CUT_BYTES)),
}
_FLIP: Final = on_link("flip", lambda dice: dice.randrange(FLIP_BYTES))


def _cells() -> dict[tuple[str, str], Fault]:
    found: dict[tuple[str, str], Fault] = {}
    for process in ("frontend", "scheduler", "standby", "worker", "kvstore"):
        found |= {(process, name): fault for name, fault in PROCESS_FAULTS.items()}
    schedulers = [
        f"{source}>{target}"
        for source in ("frontend", "worker")
        for target in ("scheduler", "standby")
    ]
    for link in (*schedulers, "frontend>frontend", "all>kvstore"):
        found |= {(link, name): fault for name, fault in LINK_FAULTS.items()}
    # Elsewhere only TLS would notice, which Unix sockets do not have.
    found["all>kvstore", "bit flip"] = _FLIP
    found["kvstore", "disk full"], found["kvstore", "slow disk"] = disk_full, slow_disk
    found |= {("redis", "kill -9"): redis_kill, ("redis", "STOP"): redis_stop}
    found["two", "at once"] = found["two", "in recovery"] = two
    return found


async def strike(deployment: Deployment, cell: tuple[str, str], dice: random.Random) -> None:
    """Inject the fault of a cell. A process that another fault has ended meanwhile is let be."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        await CELLS[cell](deployment, cell[0], dice)


async def two(deployment: Deployment, process: str, dice: random.Random) -> None:
    """Two faults of different processes, the second while the first is there or is recovered
    from. Frontends only once: a stream and its only recipe would end together."""
    singles = [cell for cell in CELLS if cell[0] != "two"]
    first = dice.choice(singles)
    others = [one for one in singles if one[0] != first[0]]
    if "frontend" in first[0]:
        others = [one for one in others if "frontend" not in one[0]]
    second = dice.choice(others)

    async def inject(cell: tuple[str, str], wait: float) -> None:
        await asyncio.sleep(wait)
        await strike(deployment, cell, dice)

    wait = dice.uniform(*RECOVERY_SECONDS) if dice.random() < 0.5 else 0.0
    await asyncio.gather(inject(first, 0.0), inject(second, wait))


CELLS: Final = _cells()
"""Kind of process or link and kind of fault -> what injects it."""
