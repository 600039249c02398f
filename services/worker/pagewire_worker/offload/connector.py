"""Interface to a store of KV blocks: data classes and a protocol. See docs/connectors.md.

The payload of a block has, per layer, in order, its keys and then its values, or its latents alone.
Each is [block_size, kv_heads, head_dim] in the cache's type, contiguous.
"""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from pagewire_worker.kv.kv_cache import CacheGroup


@dataclass(frozen=True, slots=True)
class BlockLayout:
    """The facts that make two blocks of one name interchangeable. A store keeps layouts apart.

    Attributes:
        model_fingerprint: SHA-256 over configuration and weights.
        numerics_fingerprint: SHA-256 over device class, type and kernels.
        groups: Shapes of the cache, one per cache group; blocks of all groups have one size.
        num_seal_bytes: Bytes behind those of the cache, for a store.
    """

    model_fingerprint: bytes
    numerics_fingerprint: bytes
    groups: tuple[CacheGroup, ...]
    num_seal_bytes: int = 0

    @property
    def bytes_per_block(self) -> int:
        """Bytes of one payload."""
        return self.groups[0].bytes_per_block + self.num_seal_bytes

    @property
    def of_one_group(self) -> "BlockLayout":
        """The layout for a store, which keeps one payload under each name: a name is that of a
        block of one group."""
        return replace(self, groups=self.groups[:1])


@dataclass(frozen=True, slots=True)
class BlockPlacement:
    """Which stores a block goes to.

    Attributes:
        stripe: Ranks the stores; see `pagewire_shared.kv.copies`.
        num_copies: How many stores are to take it.
        held_by: Stores that have it already, and get no other copy.
    """

    stripe: int
    num_copies: int = 1
    held_by: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class OutgoingBlock:
    """A block to store.

    Attributes:
        name: Hash of its content, 16 bytes.
        tenant: Its tenant; None for the default tenant.
        payload: Its bytes; they may change as soon as `put` has returned or raised.
        placement: Where it goes; None for the first store.
    """

    name: bytes
    tenant: str | None
    payload: memoryview
    placement: BlockPlacement | None = None


@dataclass(frozen=True, slots=True)
class LoadedBlock:
    """A block that was loaded and verified.

    Attributes:
        payload: Its bytes, valid until the next block is requested or the load ends.
        tier: Its tier: "memory", "disk", "redis" or a name that the connector chooses, of 1 to 32
            characters of a-z, 0-9, _ and -, not "worker"; at most 8 different ones in one load.
    """

    name: bytes
    payload: memoryview | bytes
    tier: str


class KvConnector(Protocol):
    """A client of stores.

    All calls come from one event loop and must not block it: work of more than about a millisecond
    belongs into a thread.
    """

    @property
    def store_id(self) -> bytes:
        """Changes when the store that `put` uses may have lost its blocks."""
        ...

    async def register(self, layout: BlockLayout, addresses: Sequence[str]) -> None:
        """Take the addresses that a scheduler names at an attach. Must not wait for a store.

        `put` uses the first of `addresses` for blocks without a placement, `get` any of them.
        """
        ...

    async def put(self, blocks: Sequence[OutgoingBlock]) -> frozenset[bytes]:
        """Store blocks and return the names that the store holds now.

        These are not put again for a minute. Blocks that are left out count as dropped for lack of
        room and may come again after some seconds. `put` may be called again before an earlier
        call has returned.

        Raises:
            PagewireError: The store cannot be reached, is too slow or broke the contract. The state
                of the blocks is then unknown.
        """
        ...

    def get(
        self, address: str, names: Sequence[bytes], timeout_seconds: float
    ) -> AsyncGenerator[LoadedBlock, None]:
        """Yield blocks in the order of `names`, each with its checksum verified.

        Ends at the first block that is missing or damaged. At most a bounded window may be read
        ahead of the caller.

        Raises:
            PagewireError: As for `put`.
        """
        ...

    async def close(self) -> None:
        """Release all resources."""
        ...


class CopyingConnector(KvConnector, Protocol):
    """A connector to several stores, among which it places blocks and their copies."""

    async def missing(self, blocks: Sequence[tuple[bytes, BlockPlacement]]) -> frozenset[bytes]:
        """Return the names of these blocks that a store which they would go to lacks.

        Those of a store that does not answer count as missing.
        """
        ...
