"""Whether one tenant finds out by time what another has asked: `python -m
support.security.cache_timing --probes 10000`, in `tests`.

One tenant asks prompts, and another one asks some of them and as many that nobody has asked, in a
random order. If cached prefixes of the first served the second, its first tokens would come sooner.
The cell hands prompts over between workers, and its workers have less memory than the prompts take,
so that older ones are in the memory of a KV store, on its disk or in Redis. As a control the second
tenant asks prompts of its own again.
"""

import argparse
import asyncio
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pagewire.client.client import AsyncClient
from pagewire.client.events import Closed, Delta
from support.cells.kv_cells import PATIENCE_SECONDS
from support.cells.role_cells import RoleCell, role_cell, worker_names
from support.checkpoints.checkpoints import make_checkpoint
from support.processes.kv_stores import RedisServer
from support.processes.role_processes import Place

NUM_PROMPT_TOKENS = 160
ROUND = 50
KEYS = "owner=sk-owner\nother=sk-other\n"


@dataclass(frozen=True, slots=True)
class Probe:
    """One question of the second tenant.

    Attributes:
        was_asked: The first tenant had asked it before.
        seconds: Until its first token.
        num_cached: Tokens of the prompt that were not computed, as the answer says.
    """

    was_asked: bool
    seconds: float
    num_cached: int


@dataclass(frozen=True, slots=True)
class Found:
    """What a run has measured; `own` are prompts of the second tenant itself."""

    others: Sequence[Probe]
    own: Sequence[Probe]


def auc(probes: Sequence[Probe]) -> float:
    """Return the area under the curve of the best threshold of time, in either direction."""
    ordered = sorted(probes, key=lambda probe: probe.seconds)
    num_asked = sum(probe.was_asked for probe in probes)
    ranks = sum(rank for rank, probe in enumerate(ordered, 1) if probe.was_asked)
    below = ranks - num_asked * (num_asked + 1) / 2
    area = below / (num_asked * (len(probes) - num_asked))
    return max(area, 1.0 - area)


@contextmanager
def timed_cell(folder: Path) -> Iterator[RoleCell]:
    """A cell with hand-offs, a store with three tiers, and two tenants."""
    checkpoint = make_checkpoint(folder / "model", architecture="Qwen3ForCausalLM")
    (folder / "keys").write_text(KEYS)
    with RedisServer(folder) as redis:
        flags = {
            "frontend": ["--api-key-file", str(folder / "keys")],
            "scheduler": ["--handoff", "always", "--kv-load", "always"],
            "worker": ["--kv-cache-memory", "3MiB"],
            "kvstore": [
                *("--memory-size", "4MiB", "--disk-path", str(folder / "disk")),
                *("--disk-size", "64MiB", "--redis", redis.url),
            ],
        }
        names = worker_names(num_prefill=1, num_decode=1)
        place = lambda name, role: Place(f"unix:{folder / name}.sock")  # noqa: E731
        with role_cell(checkpoint, names, place, flags=flags) as cell:
            yield cell


async def ask(client: AsyncClient, prompt: Sequence[int], was_asked: bool) -> Probe:
    """Ask for one token; return when it came."""
    began, first, cached = time.perf_counter(), 0.0, 0
    async for event in client.complete(prompt, {"max_tokens": 1, "ignore_eos": True}):
        if isinstance(event, Delta) and not first:
            first = time.perf_counter() - began
        if isinstance(event, Closed):
            cached = event.usage.cached_tokens
    return Probe(was_asked, first, cached)


async def measure(address: str, num_probes: int, seed: int) -> Found:
    """Probe the cell at `address`."""
    dice, others, own = random.Random(seed), [], []

    def prompts() -> list[list[int]]:
        return [[dice.randrange(3, 500) for _ in range(NUM_PROMPT_TOKENS)] for _ in range(ROUND)]

    async with (
        AsyncClient(address, api_key="sk-owner", timeout_seconds=PATIENCE_SECONDS) as owner,
        AsyncClient(address, api_key="sk-other", timeout_seconds=PATIENCE_SECONDS) as other,
    ):
        while len(others) < num_probes:
            asked, unseen = prompts(), prompts()
            for prompt in asked:
                await ask(owner, prompt, True)
            mixed = [(prompt, True) for prompt in asked] + [(prompt, False) for prompt in unseen]
            dice.shuffle(mixed)
            others += [await ask(other, prompt, was_asked) for prompt, was_asked in mixed]
            # What this tenant has just asked itself, and what it has not.
            known, new = mixed[-10:], prompts()[:10]
            again = [(prompt, True) for prompt, _ in known] + [(prompt, False) for prompt in new]
            dice.shuffle(again)
            own += [await ask(other, prompt, was_asked) for prompt, was_asked in again]
    return Found(others, own)


def main() -> None:
    parser = argparse.ArgumentParser(description="Whether cached prefixes show to other tenants")
    parser.add_argument("--probes", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, timed_cell(Path(name)) as cell:
        found = asyncio.run(measure(cell.grpc_address, options.probes, options.seed))
    shown = sum(probe.num_cached for probe in found.others)
    print(
        f"{len(found.others)} probes of another tenant's prompts: AUC {auc(found.others):.3f},"
        f" {shown} tokens from its caches; {len(found.own)} of own ones: AUC {auc(found.own):.3f}"
    )


if __name__ == "__main__":
    main()
