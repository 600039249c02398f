"""The seam to a store of KV blocks. Plain data and one protocol; docs/connectors.md has an example.

Payload of a block: per layer, in order, its keys and then its values, each
[block_size, kv_heads, head_dim] in the cache's type, contiguous.
"""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Protocol

from pagewire_worker.kv.kv_cache import CacheGroup


@dataclass(frozen=True, slots=True)
class BlockLayout:
    """What makes two blocks of one name interchangeable. A store keeps layouts apart.

    Attributes:
        model_fingerprint: SHA-256 over configuration and weights.
        numerics_fingerprint: SHA-256 over device class, type and kernels.
        groups: Shapes of the cache; a worker has one group.
    """

    model_fingerprint: bytes
    numerics_fingerprint: bytes
    groups: tuple[CacheGroup, ...]

    @property
    def bytes_per_block(self) -> int:
        """Bytes of one payload."""
        return self.groups[0].bytes_per_block


@dataclass(frozen=True, slots=True)
class OutgoingBlock:
    """A block to be stored.

    Attributes:
        name: 16 bytes that name its content.
        tenant: Whose it is; None for the default tenant.
        payload: Its bytes; they may change as soon as `put` has returned or raised.
    """

    name: bytes
    tenant: str | None
    payload: memoryview


@dataclass(frozen=True, slots=True)
class LoadedBlock:
    """A block that came, verified.

    Attributes:
        name: Its name.
        payload: Its bytes, valid until the next block is asked for or the load ends.
        tier: Where it was: "memory", "disk", "redis" or a name of the connector's own, of 1 to 32
            characters of a-z, 0-9, _ and -, not "worker"; at most 8 different ones in one load.
    """

    name: bytes
    payload: memoryview | bytes
    tier: str


class KvConnector(Protocol):
    """A client of stores. All calls come from one event loop, which they must never hold up: what
    takes more than about a millisecond belongs into a thread."""

    @property
    def store_id(self) -> bytes:
        """Changes when the store that `put` uses may have lost what it held."""
        ...

    async def register(self, layout: BlockLayout, addresses: Sequence[str]) -> None:
        """Take what a scheduler says at an attach: `put` goes to the first of `addresses`, `get`
        to any of them. Must not wait for a store."""
        ...

    async def put(self, blocks: Sequence[OutgoingBlock]) -> frozenset[bytes]:
        """Store blocks and return the names that the store holds now, which are not put again for
        a minute. What it leaves out counts as dropped for want of room and may come again after
        some seconds. `put` may be called again before an earlier call has returned.

        Raises:
            PagewireError: The store cannot be reached, is too slow or broke the contract. Nothing
                is known of the blocks then.
        """
        ...

    def get(
        self, address: str, names: Sequence[bytes], timeout_seconds: float
    ) -> AsyncGenerator[LoadedBlock, None]:
        """Yield blocks in the order of `names`, each with its checksum verified; end at the first
        that is missing or damaged. No more than a bounded window may be read ahead of the caller.

        Raises:
            PagewireError: As for `put`.
        """
        ...

    async def close(self) -> None:
        """Let go of everything."""
        ...
