"""Ranks the KV stores for a stripe of blocks, and divides a load among the stores that have its
blocks. The callers know which stores are alive, and what they have."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

STRIPE_BLOCKS: Final = 64
"""Consecutive blocks of a prefix that go to one store, and are loaded with one call."""
MAX_STORES: Final = 32
"""Bits of a mask of stores."""


@dataclass(frozen=True, slots=True)
class BlockCopies:
    """Which stores have the blocks of a load.

    Attributes:
        stores: Addresses, the preferred ones first.
        holders: Per block: bit i is set where `stores[i]` has it.
        stripes: Per block, its stripe, where some blocks have too few copies; else empty.
        tenant: Tenant that further copies count towards; "" for the default tenant.
    """

    stores: tuple[str, ...]
    holders: tuple[int, ...]
    stripes: tuple[int, ...] = ()
    tenant: str = ""

    def holding(self, at: int) -> frozenset[str]:
        """Return the stores that have block `at`."""
        mask = self.holders[at]
        return frozenset(store for bit, store in enumerate(self.stores) if mask >> bit & 1)


@lru_cache(maxsize=8192)
def rank_stores(stripe: int, stores: frozenset[str]) -> tuple[str, ...]:
    """Return `stores`, the first choice for a stripe first.

    By rendezvous hashing (Thaler and Ravishankar 1998): a store that comes or goes moves no stripe
    between the others.
    """
    said = stripe.to_bytes(8, "little")

    def weight(store: str) -> tuple[bytes, str]:
        return hashlib.blake2b(said + store.encode(), digest_size=8).digest(), store

    return tuple(sorted(stores, key=weight, reverse=True))


def first_part(holders: Sequence[int], begin: int, banned: int = 0) -> tuple[int, int] | None:
    """Return (store, end) of the longest part from block `begin` that one store has.

    Among equals the first store is taken. None where no store outside the mask `banned` has it.
    """
    left, end = holders[begin] & ~banned, begin
    last = left
    while left:
        last, end = left, end + 1
        left = left & holders[end] if end < len(holders) else 0
    return ((last & -last).bit_length() - 1, end) if last else None


def parts_of(holders: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Yield (store, begin, end) of the fewest parts that bring all blocks, in order; ends at the
    first block that no store has."""
    begin = 0
    while begin < len(holders) and (part := first_part(holders, begin)) is not None:
        yield part[0], begin, part[1]
        begin = part[1]


def count_copies(mask: int) -> int:
    """Return how many stores have a block."""
    return mask.bit_count()


def first_targets(
    stripe: int, stores: Iterable[str], alive: Iterable[str], held_by: frozenset[str], count: int
) -> list[str]:
    """Return up to `count` stores that a block goes to: the first of its rank that are alive and
    have no copy of it."""
    usable = frozenset(alive) - held_by
    return [store for store in rank_stores(stripe, frozenset(stores)) if store in usable][:count]
