"""Takes one of three KV stores away under load, each way in turn, and measures the hit rate.

    cd tests && python -m support.traffic.lost_stores

Prompts of a few prefixes are sent in waves that do not fit the pool of the worker, so that their
blocks come from stores. Each answer has to be the one that comes without a store.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from support.cells.clusters import Cluster
from support.cells.kv_cells import PATIENCE_SECONDS, prompt_of, running
from support.checkpoints.checkpoints import make_checkpoint
from support.processes.kv_stores import KvStore, listed_names
from support.processes.processes import free_port
from support.processes.slow_links import SlowLink
from support.traffic.kv_waves import Waves, make_waves

NUM_STORES = 3
NUM_COPIES = 2
BLOCK_TOKENS = 4
PROMPT_TOKENS = 301
"""75 blocks: more than a stripe, so that a prefix may lie in several stores."""
LEAST = 0.95
"""Least hit rate, as a part of that before."""
LONE_BLOCKS = 3
"""Blocks behind a prompt that no load asks for, and that have one copy."""
AT_A_TIME = 3
POOL_BYTES = 800 * 1024
"""400 blocks: room for the prompts of a wave, and for no others."""
HEAD = (
    "a store is",
    "hit rate before",
    "from then on, the worst store",
    "ratio",
    "loads that another copy took over, 3 stores",
    "slowest wave before",
    "from then on",
)
FAULTS = ("killed", "restarted", "hung", "cut off")


@dataclass(slots=True)
class Member:
    """A store and the link that leads to it."""

    store: KvStore
    link: SlowLink

    def take_away(self, fault: str) -> None:
        """Let it be lost in one of the ways."""
        if fault == "hung":
            self.store.pause()
        elif fault == "cut off":
            self.link.cut()
        else:
            self.store.kill()
            if fault == "restarted":
                self.store.start()

    def give_back(self, fault: str) -> None:
        """Undo that; a store that was killed comes back empty."""
        if fault == "hung":
            self.store.resume()
        elif fault == "cut off":
            self.link.mend()
        elif fault == "killed":
            self.store.start()


@dataclass(frozen=True, slots=True)
class HitRate:
    """Prompt tokens of some waves that were not computed, of all of them, and the seconds of the
    slowest wave."""

    num_cached: int
    num_loaded: int
    num_tokens: int
    slowest: float

    @property
    def cached(self) -> float:
        """The part that was not computed."""
        return self.num_cached / self.num_tokens


@contextmanager
def stores(folder: Path, num_stores: int = NUM_STORES) -> Iterator[list[Member]]:
    """Yield stores that send their blocks over links."""
    with ExitStack() as stack:
        members = []
        for number in range(num_stores):
            place = folder / f"store-{number}"
            place.mkdir()
            flags = ("--memory-size", "16MiB", "--shared-memory-path", "off")
            store = stack.enter_context(KvStore(place, *flags))
            link = stack.enter_context(SlowLink(place, store.address))
            members.append(Member(store, link))
        yield members


@contextmanager
def cell(checkpoint: Path, members: Sequence[Member], **settings: Any) -> Iterator[Cluster]:
    """Yield a cell with these stores whose prompts do not fit the pool of its worker."""
    common = {
        "kv_load": "always",
        "kvstore_copies": NUM_COPIES,
        "block_size": BLOCK_TOKENS,
        "kv_cache_memory": POOL_BYTES,
    }
    addresses = [member.link.address for member in members]
    with running(checkpoint, *addresses, **{**common, **settings}) as cluster:
        yield cluster


def shared_waves(checkpoint: Path, num_prefixes: int, num_tokens: int = PROMPT_TOKENS) -> Waves:
    """Return waves of prompts with different beginnings, a few at a time in turn."""
    prompts = [prompt_of(number, num_tokens) for number in range(num_prefixes)]
    return make_waves(checkpoint, [], prompts, AT_A_TIME)


async def hit_rate(waves: Waves, prompts_tokens: int, num_waves: int) -> HitRate:
    """Send waves and return what of their prompts was cached. Raises AssertionError for a wrong
    token."""
    num_cached = num_loaded = num_tokens = 0
    slowest = 0.0
    for _ in range(num_waves):
        began = time.monotonic()
        for answer in await waves.run_one():
            num_cached += sum(answer.cached.values())
            num_loaded += answer.num_loaded
            num_tokens += prompts_tokens
        slowest = max(slowest, time.monotonic() - began)
    return HitRate(num_cached, num_loaded, num_tokens, slowest)


async def under_load(
    waves: Waves, prompts_tokens: int, num_waves: int, disturb: Callable[[], None]
) -> HitRate:
    """Return the hit rate of waves in the first of which something happens."""
    measuring = asyncio.create_task(hit_rate(waves, prompts_tokens, num_waves))
    await asyncio.sleep(0.1)
    await asyncio.to_thread(disturb)
    return await measuring


async def copied(
    waves: Waves, members: Sequence[Member], num_waves: int, num_copies: int = NUM_COPIES
) -> int:
    """Send waves until all blocks that are loaded have all their copies; return how many blocks
    the stores have together."""
    num_lone = LONE_BLOCKS * waves.num_prompts * (num_copies - 1)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            for _ in range(num_waves):
                await waves.run_one()
                await asyncio.sleep(0.1)  # copies are put when nothing else is to do
            held = [await listed_names(member.store.address) for member in members]
            count, names = sum(map(len, held)), set[bytes]().union(*held)
            if count >= num_copies * len(names) - num_lone and (num_copies == 1 or all(held)):
                return count


async def fall(
    waves: Waves,
    members: Sequence[Member],
    fault: str,
    number: int,
    num_waves: int,
    num_copies: int = NUM_COPIES,
) -> tuple[HitRate, HitRate]:
    """Return the hit rate before a store is lost, and from then on; the store comes back."""
    await copied(waves, members, num_waves, num_copies)
    before = await hit_rate(waves, PROMPT_TOKENS, num_waves)
    lost = members[number]
    during = await under_load(waves, PROMPT_TOKENS, num_waves, lambda: lost.take_away(fault))
    lost.give_back(fault)
    return before, during


def ratio_of(rates: tuple[HitRate, HitRate]) -> float:
    """Return the hit rate from the loss on as a part of that before; 0 where there was none."""
    before, during = rates
    return during.cached / before.cached if before.cached else 0.0


def num_failovers(port: int) -> int:
    """Return how many loads of the worker went on with another copy."""
    text = httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE_SECONDS).text
    name = "pagewire_kv_load_failovers_total{"
    lines = [line for line in text.splitlines() if line.startswith(name)]
    return sum(int(float(line.split()[-1])) for line in lines)


def main() -> None:
    """Print a table; the status is that of the verdict."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--prefixes", type=int, default=12)
    parser.add_argument("--waves", type=int, default=8)
    parser.add_argument("--copies", type=int, default=NUM_COPIES)
    given = parser.parse_args()
    is_good = True
    with tempfile.TemporaryDirectory() as folder, stores(Path(folder)) as members:
        checkpoint = make_checkpoint(Path(folder) / "tiny")
        waves = shared_waves(checkpoint, given.prefixes)
        first = free_port()
        settings = {"kvstore_copies": given.copies, "metrics_port": first}
        with cell(checkpoint, members, **settings) as waves.cluster:
            print(f"| {' | '.join(HEAD)} |\n|{' --- |' * len(HEAD)}")
            for fault in FAULTS:
                count = num_failovers(first + 2)
                rates = [
                    asyncio.run(fall(waves, members, fault, number, given.waves, given.copies))
                    for number in range(len(members))
                ]
                before, during = min(rates, key=ratio_of)
                ratio = ratio_of((before, during))
                is_good &= ratio >= LEAST
                count = num_failovers(first + 2) - count
                times = [max(rate[which].slowest for rate in rates) for which in range(2)]
                cells = [fault, f"{before.cached:.3f}", f"{during.cached:.3f}", f"{ratio:.3f}"]
                cells += [str(count), f"{times[0]:.2f} s", f"{times[1]:.2f} s"]
                print(f"| {' | '.join(cells)} |", flush=True)
    sys.exit(not is_good)


if __name__ == "__main__":
    main()
