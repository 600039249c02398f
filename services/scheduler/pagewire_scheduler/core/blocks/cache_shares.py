"""Bounds what each tenant keeps in the cache of one worker when no sequence holds it.

Blocks beyond the bound of their tenant, the least recently used first, are given out before all
others. So a tenant that reads much does not push out what others use again.
"""

from collections import OrderedDict
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CacheOwner:
    """Who pays for a cached block.

    Attributes:
        tenant: Its tenant; empty for the default tenant.
        most_blocks: Blocks without a holder that the tenant may keep.
    """

    tenant: str
    most_blocks: int


class CacheShares:
    """The blocks with an owner in one pool. Others are nowhere in here.

    All tables have at most one entry per block of the pool.
    """

    __slots__ = ("_idle", "_owners")

    def __init__(self) -> None:
        self._owners: dict[int, CacheOwner] = {}
        self._idle: dict[str, OrderedDict[int, None]] = {}

    def own(self, block: int, owner: CacheOwner) -> None:
        """Note the owner of a held block; the latest bound of its tenant counts."""
        held = self._owners.get(block)
        if held is None or held.tenant == owner.tenant:
            self._owners[block] = owner

    def idle(self, block: int) -> list[int]:
        """Note that a named block has no holder any more.

        Return the blocks that the tenant has too many now; they are to be given out first.
        """
        owner = self._owners.get(block)
        if owner is None:
            return []
        idle = self._idle.setdefault(owner.tenant, OrderedDict())
        idle[block] = None
        excess = [idle.popitem(last=False)[0] for _ in range(len(idle) - owner.most_blocks)]
        if not idle:
            del self._idle[owner.tenant]
        return excess

    def busy(self, block: int) -> None:
        """Note that a block has a holder again."""
        owner = self._owners.get(block)
        idle = None if owner is None else self._idle.get(owner.tenant)
        if owner is not None and idle is not None:
            idle.pop(block, None)
            if not idle:
                del self._idle[owner.tenant]

    def forget(self, block: int) -> None:
        """Note that a block has no name any more."""
        self.busy(block)
        self._owners.pop(block, None)

    def num_idle(self, tenant: str) -> int:
        """Return how many blocks without a holder count towards the bound of a tenant."""
        return len(self._idle.get(tenant, ()))
