"""What the block store needs of a tier that is slower than memory."""

from collections.abc import Callable, Sequence
from typing import Protocol

from pagewire_kvstore.blocks.types import BlockKey, BlockRecord, TierState


class SlowTier(Protocol):
    """A tier whose calls wait for something else; used from one event loop.

    Attributes:
        name: "disk" or "redis".
        on_gone: Called with every block that is no longer there, or did not come there.
        on_found: Called with blocks that are there without having been put here.
    """

    name: str
    on_gone: Callable[[BlockKey], None]
    on_found: Callable[[Sequence[BlockKey]], None]

    def holds(self, key: BlockKey) -> bool:
        """Whether the block is known to be there, or is on its way."""
        ...

    def keys(self) -> list[BlockKey]:
        """Blocks that are known to be there."""
        ...

    def queued(self, key: BlockKey) -> BlockRecord | None:
        """Return a block that is on its way there."""
        ...

    def offer(self, record: BlockRecord, release: Callable[[], None] | None = None) -> bool:
        """Put a block soon, see TierWriter.offer."""
        ...

    async def get(self, key: BlockKey) -> BlockRecord | None:
        """Return a block, verified, or None; a tier that does not work has none."""
        ...

    async def find(self, keys: Sequence[BlockKey]) -> set[BlockKey]:
        """Return which of these blocks `get` would find."""
        ...

    def count_miss(self, key: BlockKey) -> None:
        """Count a `get` that was not made, because `find` did not find the block."""
        ...

    async def delete_tenant(self, tenant: str) -> list[BlockKey]:
        """Remove a tenant's blocks and return which.

        Raises TierUnavailableError when some may be left.
        """
        ...

    async def wait_written(self) -> None:
        """Wait until what was offered is written or dropped."""
        ...

    def state(self) -> TierState:
        """State of the tier."""
        ...

    async def run(self) -> None:
        """Do what is to be done in the background, until cancelled."""
        ...

    def close(self) -> None:
        """Give everything back; `run` has ended."""
        ...
