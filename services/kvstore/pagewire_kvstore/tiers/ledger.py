"""Ledger of a tier: sizes and tenants of its blocks in order of use, and the choice of victims."""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from pagewire_kvstore.blocks.types import BlockKey


class _Entry(NamedTuple):
    num_bytes: int
    tenant: str


class Ledger:
    """Evicts the least recently used blocks first; bytes are bounded in all and per tenant.

    A tenant at its quota evicts its own blocks only, so a flood takes no more from other tenants
    than the rest of its quota. Operations are O(1) amortized. `room_for` also walks over pinned
    blocks, at most once over each.

    Args:
        quota: Bound of a tenant's blocks in bytes; None for no bound of its own.
    """

    def __init__(self, capacity_bytes: int, quota: Callable[[str], int | None]) -> None:
        assert capacity_bytes > 0, capacity_bytes
        self.capacity_bytes = capacity_bytes
        self.used_bytes = 0
        self._quota = quota
        self._entries: OrderedDict[BlockKey, _Entry] = OrderedDict()
        self._keys_by_tenant: dict[str, OrderedDict[BlockKey, None]] = {}
        self._bytes_by_tenant: dict[str, int] = {}

    def __contains__(self, key: BlockKey) -> bool:
        return key in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def keys(self) -> Iterator[BlockKey]:
        """Return all keys, least recently used first. Do not change the ledger meanwhile."""
        return iter(self._entries)

    def tenant_keys(self, tenant: str) -> list[BlockKey]:
        """Return the keys of a tenant, least recently used first."""
        return list(self._keys_by_tenant.get(tenant, ()))

    def tenant_bytes(self, tenant: str) -> int:
        """Return the bytes of a tenant's blocks."""
        return self._bytes_by_tenant.get(tenant, 0)

    def bytes_of(self, key: BlockKey) -> int:
        """Return the bytes of a block, 0 when the ledger does not have it."""
        entry = self._entries.get(key)
        return entry.num_bytes if entry is not None else 0

    def bound_of(self, tenant: str) -> int:
        """Return the most bytes that a tenant may have."""
        quota = self._quota(tenant)
        return self.capacity_bytes if quota is None else min(quota, self.capacity_bytes)

    def room_for(
        self, key: BlockKey, num_bytes: int, tenant: str, is_pinned: Callable[[BlockKey], bool]
    ) -> list[BlockKey] | None:
        """Return the blocks to evict before a block can be added, without changing the ledger.

        Args:
            key: The new block. A present block of this key will be replaced: its bytes count as
                free, and it is not returned.
            is_pinned: Whether a block must stay.

        Returns:
            Keys to remove, never pinned; None when eviction cannot make enough room.
        """
        if num_bytes > self.bound_of(tenant):
            return None
        victims: dict[BlockKey, None] = {key: None}
        held = self._entries.get(key)
        own_freed = 0
        quota = self._quota(tenant)
        if quota is not None:
            own_excess = self.tenant_bytes(tenant) + num_bytes - quota
            if held is not None and held.tenant == tenant:
                own_excess -= held.num_bytes
            own_keys = self._keys_by_tenant.get(tenant, ())
            own_freed = self._choose(own_keys, own_excess, victims, is_pinned)
            if own_freed < own_excess:
                return None
        replaced_bytes = held.num_bytes if held is not None else 0
        excess = self.used_bytes - replaced_bytes + num_bytes - self.capacity_bytes - own_freed
        if self._choose(self._entries, excess, victims, is_pinned) < excess:
            return None
        del victims[key]
        return list(victims)

    def _choose(
        self,
        keys: Iterable[BlockKey],
        excess: int,
        victims: dict[BlockKey, None],
        is_pinned: Callable[[BlockKey], bool],
    ) -> int:
        """Add keys to `victims` until they free `excess` bytes; return the bytes freed."""
        freed = 0
        if excess <= 0:
            return freed
        for key in keys:
            if key in victims or is_pinned(key):
                continue
            victims[key] = None
            freed += self._entries[key].num_bytes
            if freed >= excess:
                break
        return freed

    def add(self, key: BlockKey, num_bytes: int, tenant: str) -> None:
        """Add a block as the most recently used; it replaces one of the same key.

        The caller has removed what `room_for` named.
        """
        assert num_bytes > 0, num_bytes
        self.remove(key)
        self._entries[key] = _Entry(num_bytes, tenant)
        self._keys_by_tenant.setdefault(tenant, OrderedDict())[key] = None
        self._bytes_by_tenant[tenant] = self.tenant_bytes(tenant) + num_bytes
        self.used_bytes += num_bytes
        assert self.used_bytes <= self.capacity_bytes, "added without room"

    def remove(self, key: BlockKey) -> bool:
        """Remove a block; return False when the ledger does not have it."""
        entry = self._entries.pop(key, None)
        if entry is None:
            return False
        self.used_bytes -= entry.num_bytes
        self._bytes_by_tenant[entry.tenant] -= entry.num_bytes
        own_keys = self._keys_by_tenant[entry.tenant]
        del own_keys[key]
        if not own_keys:
            # Tenants come and go, so a tenant without blocks leaves no entry.
            del self._keys_by_tenant[entry.tenant]
            del self._bytes_by_tenant[entry.tenant]
        return True

    def touch(self, key: BlockKey) -> None:
        """Make a block the most recently used; an unknown key is ignored."""
        entry = self._entries.get(key)
        if entry is not None:
            self._entries.move_to_end(key)
            self._keys_by_tenant[entry.tenant].move_to_end(key)
