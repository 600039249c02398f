"""The content of adapters that stays in memory, the least recently used ones leave first."""

from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass

from pagewire_shared.adapters.adapter_folder import AdapterContent, AdapterSummary


@dataclass(frozen=True, slots=True)
class WarmAdapter:
    """An adapter whose content was checked."""

    content: AdapterContent
    summary: AdapterSummary


class WarmAdapters:
    """Contents by identity, bounded by their number and bytes. Used on one thread.

    Args:
        max_adapters: Most contents.
        max_bytes: Most bytes of all of them.
    """

    def __init__(self, max_adapters: int, max_bytes: int) -> None:
        self._max_adapters = max_adapters
        self.max_bytes = max_bytes
        self._held: OrderedDict[bytes, WarmAdapter] = OrderedDict()
        self._num_bytes = 0

    @property
    def ids(self) -> tuple[bytes, ...]:
        """The identities, the least recently used first."""
        return tuple(self._held)

    @property
    def num_bytes(self) -> int:
        """Bytes of all contents."""
        return self._num_bytes

    def find(self, adapter_id: bytes) -> WarmAdapter | None:
        """Return an adapter, and note that it was used."""
        found = self._held.get(adapter_id)
        if found is not None:
            self._held.move_to_end(adapter_id)
        return found

    def add(self, adapter: WarmAdapter, in_use: Collection[bytes]) -> None:
        """Keep an adapter, in the place of others that are not in use.

        Where it does not fit beside those in use, it is not kept.
        """
        adapter_id, size = adapter.summary.adapter_id, adapter.content.num_bytes
        if adapter_id in self._held:
            return
        idle = [one for one in self._held if one not in in_use]
        while idle and not self._has_room(size):
            self._num_bytes -= self._held.pop(idle.pop(0)).content.num_bytes
        if self._has_room(size):
            self._held[adapter_id] = adapter
            self._num_bytes += size

    def _has_room(self, num_bytes: int) -> bool:
        is_few = len(self._held) < self._max_adapters
        return is_few and self._num_bytes + num_bytes <= self.max_bytes
