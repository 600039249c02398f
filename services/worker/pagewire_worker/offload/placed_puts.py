"""Places blocks on several KV stores: each goes to the first of its rank that take blocks."""

import asyncio
import time
from collections.abc import Callable, Collection, Mapping, Sequence

from pagewire_shared.errors import PagewireError, UnavailableError
from pagewire_shared.kv.copies import first_targets, rank_stores
from pagewire_shared.process.cancellation import is_cancelled
from pagewire_shared.process.circuit import CircuitBreaker
from pagewire_worker.offload import metrics
from pagewire_worker.offload.connector import BlockPlacement, OutgoingBlock
from pagewire_worker.offload.kv_store_link import KvStoreLink

FIRST_PAUSE_SECONDS = 1.0
MAX_PAUSE_SECONDS = 30.0
"""How long a store that failed gets no blocks, at first and at most."""
EXIST_NAMES = 4096
"""Names that a store takes in one question."""


class PlacedPuts:
    """The stores of a cell as one place for blocks.

    Args:
        links: The links of the stores, by address.
        clock: Returns the time in seconds.
    """

    def __init__(
        self, links: Mapping[str, KvStoreLink], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._links = links
        self._clock = clock
        self._breakers = {
            address: CircuitBreaker(
                max_failures=1, first_seconds=FIRST_PAUSE_SECONDS, max_seconds=MAX_PAUSE_SECONDS
            )
            for address in links
        }

    @property
    def store_id(self) -> bytes:
        """Changes when a store is another one than before, is lost, fails, or works again."""
        states = (
            link.store_id + bytes([link.is_connected, self._breakers[address].is_closed])
            for address, link in self._links.items()
        )
        return b"/".join(states)

    async def put(self, blocks: Sequence[OutgoingBlock]) -> frozenset[bytes]:
        """Put each block to as many stores as it wants; return the names that one has now.

        What a store does not take, because it fails, goes to the next one of the rank.

        Raises:
            PagewireError: No store takes any of them.
        """
        tried: dict[bytes, set[str]] = {block.name: set() for block in blocks}
        num_done = dict.fromkeys(tried, 0)
        held: set[bytes] = set()
        error: PagewireError = UnavailableError("no KV store takes blocks")
        is_answered = False
        while groups := self._group(blocks, tried, num_done):
            answers = await asyncio.gather(
                *(self._put_one(address, group) for address, group in groups.items())
            )
            for group, answer in zip(groups.values(), answers, strict=True):
                if isinstance(answer, PagewireError):
                    error = answer
                    continue
                is_answered = True
                held |= answer
                for block in group:
                    # Also where it has no room: a quota is not to be evaded.
                    num_done[block.name] += 1
        if not is_answered:
            raise error
        return frozenset(held)

    async def missing(self, blocks: Sequence[tuple[bytes, BlockPlacement]]) -> frozenset[bytes]:
        """See CopyingConnector."""
        groups: dict[str, list[bytes]] = {}
        alive = self._alive()
        for name, placement in blocks:
            for address in self._targets(placement, alive, frozenset()):
                groups.setdefault(address, []).append(name)
        answers = await asyncio.gather(
            *(self._missing_of(address, names) for address, names in groups.items())
        )
        return frozenset[bytes]().union(*answers)

    async def _missing_of(self, address: str, names: Sequence[bytes]) -> frozenset[bytes]:
        missing: frozenset[bytes] = frozenset()
        for begin in range(0, len(names), EXIST_NAMES):
            asked = names[begin : begin + EXIST_NAMES]
            try:
                missing |= frozenset(asked) - await self._links[address].exist(asked)
            except PagewireError:
                # A put finds out what is wrong with it.
                return missing | frozenset(names[begin:])
        return missing

    def _group(
        self,
        blocks: Sequence[OutgoingBlock],
        tried: Mapping[bytes, set[str]],
        num_done: Mapping[bytes, int],
    ) -> dict[str, list[OutgoingBlock]]:
        """Return the blocks to put next, by store, and note that those were tried."""
        groups: dict[str, list[OutgoingBlock]] = {}
        alive = self._alive()
        for block in blocks:
            placement = block.placement
            assert placement is not None, "a block without a placement goes to the first store"
            num_left = placement.num_copies - num_done[block.name]
            if num_left <= 0:
                continue
            for address in self._targets(placement, alive, tried[block.name])[:num_left]:
                groups.setdefault(address, []).append(block)
                tried[block.name].add(address)
                if not placement.held_by and address != self._first(placement.stripe):
                    metrics.MOVED_BLOCKS.inc()
        return groups

    def _first(self, stripe: int) -> str:
        return rank_stores(stripe, frozenset(self._links))[0]

    def _targets(
        self, placement: BlockPlacement, alive: Collection[str], tried: Collection[str]
    ) -> list[str]:
        left_out = placement.held_by.union(tried)
        return first_targets(placement.stripe, self._links, alive, left_out, placement.num_copies)

    def _alive(self) -> list[str]:
        now = self._clock()
        return [
            address for address, breaker in self._breakers.items() if breaker.allows_attempt(now)
        ]

    async def _put_one(
        self, address: str, blocks: Sequence[OutgoingBlock]
    ) -> frozenset[bytes] | PagewireError:
        """Return the names that the store has now, or why it took none."""
        breaker = self._breakers[address]
        if not breaker.allows_attempt(self._clock()):
            return UnavailableError("the store is being tried by another put")
        breaker.begin(self._clock())
        try:
            names = await self._links[address].put(blocks)
        except PagewireError as error:
            breaker.fail(self._clock())
            return error
        except asyncio.CancelledError:
            if is_cancelled():
                breaker.forgo()
                raise
            breaker.fail(self._clock())
            return UnavailableError("the put was cancelled")
        breaker.succeed()
        return names
