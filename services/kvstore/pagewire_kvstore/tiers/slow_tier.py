"""Protocol of the tiers that are slower than memory, as the block store uses them."""

from collections.abc import Callable, Sequence
from typing import Protocol

from pagewire_kvstore.blocks.types import BlockKey, BlockRecord, TierState


class SlowTier(Protocol):
    """A tier whose calls wait for a disk or a server; used from one event loop.

    Attributes:
        name: "disk" or "redis".
        on_gone: Called with every block that the tier lost, evicted or could not write.
        on_found: Called with blocks that the tier has although this store did not put them.
    """

    name: str
    on_gone: Callable[[BlockKey], None]
    on_found: Callable[[Sequence[BlockKey]], None]

    def holds(self, key: BlockKey) -> bool:
        """Return whether the tier is known to have the block, or has queued it."""
        ...

    def keys(self) -> list[BlockKey]:
        """Return the blocks that the tier is known to have."""
        ...

    def queued(self, key: BlockKey) -> BlockRecord | None:
        """Return a block that waits to be written."""
        ...

    def offer(self, record: BlockRecord, release: Callable[[], None] | None = None) -> bool:
        """Queue a block; see TierWriter.offer."""
        ...

    async def get(self, key: BlockKey) -> BlockRecord | None:
        """Return a block, verified; None for a miss or a tier that does not work."""
        ...

    async def find(self, keys: Sequence[BlockKey]) -> set[BlockKey]:
        """Return the blocks that `get` would find."""
        ...

    def count_miss(self, key: BlockKey) -> None:
        """Count a `get` that was not made, because `find` did not find the block."""
        ...

    async def delete_tenant(self, tenant: str) -> list[BlockKey]:
        """Remove a tenant's blocks and return their keys.

        Raises TierUnavailableError when some may be left.
        """
        ...

    async def wait_written(self) -> None:
        """Wait until all offered blocks are written or dropped."""
        ...

    def state(self) -> TierState:
        """Return the state of the tier."""
        ...

    async def run(self) -> None:
        """Run the background work, until cancelled."""
        ...

    def close(self) -> None:
        """Release all resources; `run` must have ended."""
        ...
