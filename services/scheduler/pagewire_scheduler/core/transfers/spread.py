"""Chooses the stores that a load comes from, where several can be reached: a prefix may be divided
among them, and most of its blocks have copies."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pagewire_scheduler.core.costs.load_cost import (
    LoadDecision,
    LoadReason,
    SpreadLink,
    choose,
)
from pagewire_scheduler.core.state.worker import WorkerState
from pagewire_scheduler.core.transfers.remote_index import RemoteIndex
from pagewire_shared.identity.ids import BlockName
from pagewire_shared.kv.copies import BlockCopies, count_copies, parts_of


@dataclass(frozen=True, slots=True)
class LoadSpread:
    """The stores that have the next blocks of a prefix.

    Attributes:
        stores: Those that may be asked, the ones with the least under way first.
        holders: Per block, which of them have it, as bits; all are set for some store.
    """

    stores: tuple[str, ...]
    holders: tuple[int, ...]


def is_spread(worker: WorkerState, index: RemoteIndex) -> bool:
    """Return whether loads of `worker` name the copies of blocks: only where there may be any."""
    return worker.loads.places_copies and index.num_live > 1


def find_spread(
    worker: WorkerState, index: RemoteIndex, names: Iterable[BlockName], now: float
) -> LoadSpread | None:
    """Return the first of `names` that stores have that do not fail; None if no store has the
    first name. No block is left where only failing stores have it."""
    loads = worker.loads
    stores = sorted(index.usable, key=lambda store: loads.link(store).num_bytes_under_way)
    holders = index.holders(names, stores)
    if not holders:
        return None
    working = [loads.link(store).allows_attempt(now) for store in stores]
    if all(working):
        return LoadSpread(tuple(stores), tuple(holders))
    kept = [bit for bit, works in enumerate(working) if works]
    masks = []
    for mask in holders:
        masks.append(sum(1 << at for at, bit in enumerate(kept) if mask >> bit & 1))
        if not masks[-1]:
            masks.pop()
            break
    return LoadSpread(tuple(stores[bit] for bit in kept), tuple(masks))


def choose_spread(
    worker: WorkerState, spread: LoadSpread, start: int, length: int, now: float
) -> LoadDecision:
    """Decide about a load of `length` blocks behind `start` of them."""
    if not length:
        return LoadDecision(LoadReason.BROKEN)
    loads, info = worker.loads, worker.info
    shares = [(loads.link(store), share) for store, share in _shares(spread, length).items()]
    return choose(
        num_blocks=length,
        num_tokens=length * info.model.block_size,
        num_bytes=info.num_bytes(start, start + length),
        prefill=loads.prefill,
        link=SpreadLink(shares),
        now=now,
        is_forced=loads.is_forced,
    )


def copies_of(
    index: RemoteIndex, stores: Sequence[str], names: Sequence[BlockName], tenant: str
) -> BlockCopies:
    """Return which stores have each of `names`; one that no store has counts as in the first."""
    holders: list[int] = []
    while len(holders) < len(names):
        holders += index.holders(names[len(holders) :], stores)
        if len(holders) < len(names):
            holders.append(1)
    return BlockCopies(tuple(stores), tuple(holders), tenant=tenant)


def count_uncopied(copies: BlockCopies, num_wanted: int) -> int:
    """Return how many blocks have fewer copies than `num_wanted`."""
    return sum(count_copies(mask) < num_wanted for mask in copies.holders)


def _shares(spread: LoadSpread, length: int) -> dict[str, float]:
    """Return the share of the bytes that comes from each store."""
    shares: dict[str, float] = {}
    for store, begin, end in parts_of(spread.holders[:length]):
        address = spread.stores[store]
        shares[address] = shares.get(address, 0.0) + (end - begin) / length
    return shares
