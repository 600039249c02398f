"""KV stores that hold what workers computed, and what schedulers are told of it, late. They lose
and damage blocks without a word, so that what schedulers know is a hint."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from simulation.model.naive import Cell

from pagewire_shared.kv.copies import BlockCopies
from pagewire_shared.kv.load import LoadAnswer, LoadOrder, LoadOutcome, StorePart
from pagewire_shared.kv.transport import KvTransport

News = tuple[str, str, tuple[bytes, ...]]
"""Kind ("stored", "removed", "cleared", "up" or "down"), address, names."""

TIERS = ("memory", "disk", "redis")
BYTES_PER_BLOCK = 1000


@dataclass
class Store:
    """One store.

    Attributes:
        blocks: Cells by name.
        damaged: Names whose payload no longer has its checksum.
        is_up: Whether it answers.
    """

    address: str
    tell: Callable[[News], None]
    blocks: dict[bytes, list[Cell]] = field(default_factory=dict)
    damaged: set[bytes] = field(default_factory=set)
    is_up: bool = True

    def put(self, name: bytes, cells: list[Cell]) -> None:
        if self.is_up and name not in self.blocks:
            self.blocks[name] = cells
            self.tell(("stored", self.address, (name,)))

    def lose(self, names: list[bytes], *, is_told: bool) -> None:
        for name in names:
            self.blocks.pop(name, None)
            self.damaged.discard(name)
        if is_told and names:
            self.tell(("removed", self.address, tuple(names)))

    def clear(self) -> None:
        self.blocks.clear()
        self.damaged.clear()
        self.tell(("cleared", self.address, ()))

    def switch(self) -> None:
        self.is_up = not self.is_up
        self.tell(("up" if self.is_up else "down", self.address, ()))

    def everything(self) -> list[News]:
        """What a scheduler is told that watches from now on."""
        news: list[News] = [("cleared", self.address, ()), ("up", self.address, ())]
        if self.blocks:
            news.append(("stored", self.address, tuple(self.blocks)))
        return news if self.is_up else []


@dataclass
class PendingLoad:
    """A load that a worker was told of and has not answered."""

    order: LoadOrder
    received_at: float
    is_cancelled: bool = False

    def is_ready(self, now: float) -> bool:
        """Loads take their time, some longer than they have."""
        delay = min(self.order.load_id * 7 % 5 * 0.012, self.order.timeout_ms / 1000)
        return self.is_cancelled or now >= self.received_at + delay

    def is_late(self, now: float) -> bool:
        return now >= self.received_at + self.order.timeout_ms / 1000


@dataclass
class StorePort:
    """How a worker reaches the stores.

    Attributes:
        find: A store by its address.
        find_blocks: What a worker hands out, by its id; None when it is gone.
        pending: Loads not answered, oldest first.
        held_until: Until then it answers none, not even by the deadline.
        next_outcome: How the next load ends, if not by what the store has.
        known: Every id that it was ever told of on this attach.
    """

    find: Callable[[str], Store | None]
    find_blocks: Callable[[bytes], dict[bytes, list[Cell]] | None]
    pending: deque[PendingLoad] = field(default_factory=deque)
    held_until: float = 0.0
    next_outcome: LoadOutcome | None = None
    known: set[int] = field(default_factory=set)

    def forget(self) -> None:
        self.pending.clear()
        self.known.clear()

    def receive(self, order: LoadOrder, now: float) -> None:
        assert order.load_id not in self.known, "a load is ordered twice"
        assert len(order.blocks) == len(order.names) == len(set(order.blocks)) > 0
        self.known.add(order.load_id)
        self.pending.append(PendingLoad(order, now))

    def cancel(self, load_id: int) -> None:
        assert load_id in self.known, "a load is cancelled that was never ordered"
        for load in self.pending:
            load.is_cancelled |= load.order.load_id == load_id

    def is_ready(self, now: float) -> bool:
        return now >= self.held_until and any(self._is_ready(load, now) for load in self.pending)

    def _is_ready(self, load: PendingLoad, now: float) -> bool:
        """A worker that lacks blocks may be computing them: they are waited for."""
        source = load.order.worker
        if source is None or load.is_cancelled or load.is_late(now):
            return load.is_ready(now)
        blocks = self.find_blocks(source.worker_id)
        is_there = blocks is None or all(name in blocks for name in load.order.names)
        return is_there and load.is_ready(now)

    def finish(self, now: float, dice: Callable[[int], int]) -> tuple[LoadOrder, LoadAnswer, Any]:
        """Answer one load; return it, the answer and the cells that came, per block."""
        ready = [load for load in self.pending if self._is_ready(load, now)] or list(self.pending)
        load = ready[dice(len(ready))]
        self.pending.remove(load)
        order = load.order
        parts: tuple[StorePart, ...] = ()
        if order.copies is None:
            blocks = self._blocks_of(order)
            came = _first_of(order, blocks)
        else:
            blocks, parts = self._blocks_of_copies(order, order.copies)
            came = _first_of(order, blocks)
            self._put_copies(order, order.copies, came)
        outcome = LoadOutcome.COMPLETE if len(came) == len(order.names) else LoadOutcome.MISSING
        if blocks is None:
            outcome = LoadOutcome.FAILED
        elif load.is_cancelled:
            outcome = LoadOutcome.CANCELLED
        elif load.is_late(now):
            outcome = LoadOutcome.LATE
        forced, self.next_outcome = self.next_outcome, None
        outcome = forced or outcome
        if outcome not in (LoadOutcome.COMPLETE, LoadOutcome.MISSING):
            came = came[: dice(len(came) + 1)]
        seconds = (0.0005, 0.004, 0.03)[dice(3)]
        num = len(came)
        split = dice(num + 1)
        tiers = [(TIERS[dice(2)], split), ("redis", num - split)]
        if order.worker is not None:
            tiers = []
        answer = LoadAnswer(
            order.load_id,
            num,
            outcome,
            num_bytes=num * BYTES_PER_BLOCK,
            seconds=seconds,
            tiers=tuple((tier, count) for tier, count in tiers if count),
            parts=parts if forced is None else (),
            transport=KvTransport.GRPC if order.worker is not None else None,
            transfer_seconds=seconds if order.worker is not None else 0.0,
        )
        return order, answer, came

    def _blocks_of_copies(
        self, order: LoadOrder, copies: BlockCopies
    ) -> tuple[dict[bytes, list[Cell]] | None, tuple[StorePart, ...]]:
        """What can come from any store, and what each has done: the first that has a block
        brings it, all that lack it say so."""
        stores = [self.find(address) for address in copies.stores]
        blocks: dict[bytes, list[Cell]] = {}
        asked: dict[int, list[int]] = {}
        for at, (name, mask) in enumerate(zip(order.names, copies.holders, strict=True)):
            for bit, store in enumerate(stores):
                if not mask >> bit & 1:
                    continue
                missing = asked.setdefault(bit, [])
                if store is None or not store.is_up:
                    continue
                if name in store.blocks and name not in store.damaged:
                    blocks[name] = store.blocks[name]
                    break
                missing.append(at)
            if name not in blocks:
                break
        parts = []
        for bit, missing in asked.items():
            store = stores[bit]
            is_up = store is not None and store.is_up
            outcome = LoadOutcome.MISSING if missing else LoadOutcome.COMPLETE
            num_bytes = BYTES_PER_BLOCK if is_up and blocks else 0
            if not is_up:
                outcome = LoadOutcome.FAILED
            parts.append(StorePart(bit, num_bytes, 0.004, outcome, tuple(missing)))
        is_any_up = any(store is not None and store.is_up for store in stores)
        return blocks if is_any_up else None, tuple(parts)

    def _put_copies(
        self, order: LoadOrder, copies: BlockCopies, came: Sequence[list[Cell]]
    ) -> None:
        """Put blocks that have too few copies to one more store."""
        if not copies.stripes:
            return
        for name, mask, cells in zip(order.names, copies.holders, came, strict=False):
            others = [store for bit, store in enumerate(copies.stores) if not mask >> bit & 1]
            found = self.find(others[0]) if others else None
            if found is not None:
                found.put(name, cells)

    def _blocks_of(self, order: LoadOrder) -> dict[bytes, list[Cell]] | None:
        """What can come; None when its source does not answer."""
        if order.worker is not None:
            return self.find_blocks(order.worker.worker_id)
        store = self.find(order.store)
        if store is None or not store.is_up:
            return None
        return {name: cells for name, cells in store.blocks.items() if name not in store.damaged}


def _first_of(order: LoadOrder, blocks: dict[bytes, list[Cell]] | None) -> list[list[Cell]]:
    """The first blocks of an order, up to one that is not there."""
    came: list[list[Cell]] = []
    for name in order.names if blocks is not None else ():
        if name not in blocks:
            break
        came.append(blocks[name])
    return came
