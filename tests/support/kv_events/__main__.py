"""An outside index follows a busy cell through drops, replays, restarts and snapshots.

    cd tests && python -m support.kv_events --events 100000

At every check the index has to hold the blocks and the tokens of the caches, and nothing else.
"""

import argparse
import asyncio
import itertools
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from pagewire_scheduler.kv_events.events_config import KvEventsConfig
from support.kv_events.busy_cell import BusyCell
from support.kv_events.outside_index import OutsideIndex

CHECK_SECONDS = 60.0
TURNS_BETWEEN = 35
"""Turns from one restart, or pause of the publisher, to the next."""

EVENTS = ("BlockStored", "BlockRemoved", "AllBlocksCleared")


class Followed:
    """A busy cell and its outside index.

    Args:
        folder: For the sockets.
        loss: Share of the batches that the index does not get to see.
    """

    def __init__(self, folder: Path, seed: int, loss: float = 0.02, max_queue_size: int = 40):
        names = ("endpoint", "replay_endpoint", "snapshot_endpoint")
        self.config = KvEventsConfig(
            enable_kv_cache_events=True,
            buffer_steps=200,
            max_queue_size=max_queue_size,
            **{name: f"ipc://{folder}/{name}" for name in names},
        )
        self.dice = random.Random(seed)
        self.loss = loss
        self.counts: Counter[str] = Counter()
        self.cell = BusyCell(self.config, seed)
        self.index = self._subscribe()
        faults = (self._crowd, self.restart_subscriber, self.cell.restart)
        self._faults = itertools.cycle(faults)
        self._num_turns = 0

    def _subscribe(self) -> OutsideIndex:
        endpoints = self.config.listened.values()
        return OutsideIndex(*endpoints, lost=lambda: self.dice.random() < self.loss)

    def restart_subscriber(self) -> None:
        self.counts.update(self.index.counts)
        self.index.close()
        self.index = self._subscribe()
        self.counts["subscriber restarts"] += 1

    def turn(self) -> None:
        """A turn of the cell; now and then one side starts anew, or the publisher stands still."""
        self._num_turns += 1
        if self._num_turns % TURNS_BETWEEN == 0:
            next(self._faults)()
        self.cell.turn()
        self.index.follow()

    def _crowd(self) -> None:
        """Give the queue more than it takes, while the thread does not come to it."""
        queue = self.cell.feed._queue
        take, queue.take = queue.take, lambda: None
        for _ in range(30):
            self.cell.turn()
        queue.take = take
        queue._wake()
        self.counts["crowds"] += 1

    @property
    def num_events(self) -> int:
        return sum(self.counts[kind] + self.index.counts[kind] for kind in EVENTS)

    def check(self) -> None:
        """Wait until the index has seen the newest batch, and compare."""
        self.cell.check()
        deadline, expected = time.monotonic() + CHECK_SECONDS, self.cell.expected()
        loss, self.loss = self.loss, 0.0
        while time.monotonic() < deadline:
            self.cell.feed.flush()
            self.index.follow(0.05)
            if self.index.last is not None and not self._difference(expected):
                break
        self.loss = loss
        assert not (difference := self._difference(expected)), difference
        self._check_tokens()
        self.counts["checks"] += 1

    def _held(self) -> dict[tuple[int, str], dict[int, tuple[int, ...]]]:
        return {
            place: {one: ids for (one, _), ids in held.items()}
            for place, held in self.index.blocks.items()
            if held
        }

    def _check_tokens(self) -> None:
        """The tokens of a block and of those before it have to be those of a prompt."""
        for worker in self.cell.core.workers.values():
            for sequence in worker.running:
                ids = tuple(sequence.tokens)
                for name in (worker.pool.names[block] for block in sequence.table.blocks):
                    path = name and self.index.tokens.get(int.from_bytes(name[-8:], "big"))
                    assert not path or path == ids[: len(path)]

    def _difference(self, expected: dict) -> str:
        """A block without a known prefix may be there by its hash alone, after a snapshot."""
        held, orphans = self._held(), self.cell.orphans()
        found = []
        for place in {*held, *expected}:
            ours, cached = held.get(place, {}), expected.get(place, {})
            bare = {one for one, ids in ours.items() if not ids and (place[0], one) in orphans}
            wrong = [one for one in ours.keys() & cached.keys() if ours[one] != cached[one]]
            if ours.keys() != cached.keys() or not bare.issuperset(wrong):
                found.append(
                    f"{place}: {len(ours)} held, {len(cached)} cached, {len(wrong)} differ"
                )
        return "; ".join(found)

    def close(self) -> None:
        self.counts.update(self.index.counts)
        self.index.close()
        self.cell.feed.close()


async def follow(num_events: int, seed: int, check_every: int) -> Counter[str]:
    """Follow until the index has seen so many events; return what happened."""
    with tempfile.TemporaryDirectory() as folder:
        followed = Followed(Path(folder), seed)
        try:
            turn = 0
            while followed.num_events < num_events:
                turn += 1
                followed.turn()
                if turn % check_every == 0:
                    followed.check()
            followed.check()
        finally:
            followed.close()
        return followed.counts + Counter({f"cell: {k}": v for k, v in followed.cell.counts.items()})


async def cost(num_turns: int, seed: int) -> float:
    """Return how much longer the scheduler's own thread takes for its turns with events on."""
    seconds = {True: 0.0, False: 0.0}
    with tempfile.TemporaryDirectory() as folder:
        cells = {}
        for is_on in seconds:
            endpoint = f"ipc://{folder}/{is_on}"
            config = KvEventsConfig(enable_kv_cache_events=True, endpoint=endpoint, stores=False)
            cells[is_on] = BusyCell(config, seed, is_noting=is_on)
        for _ in range(num_turns // 20):
            for is_on, cell in cells.items():
                began_at = time.thread_time()
                for _ in range(20):
                    cell.turn()
                seconds[is_on] += time.thread_time() - began_at
        for cell in cells.values():
            cell.feed.close()
    return seconds[True] / seconds[False]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--check-every", type=int, default=50, help="turns")
    parser.add_argument("--cost", type=int, default=0, help="turns to take the time of, instead")
    given = parser.parse_args()
    if given.cost:
        print(f"a turn takes {asyncio.run(cost(given.cost, given.seed)):.2f} times as long")
        return
    began_at = time.process_time()
    counts = asyncio.run(follow(given.events, given.seed, given.check_every))
    for name, number in sorted(counts.items()):
        print(f"{name:30} {number:10,}")
    print(f"equal at every check; {time.process_time() - began_at:.1f} CPU-seconds")


if __name__ == "__main__":
    sys.exit(main())
