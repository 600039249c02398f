"""Remembers names that need not be offered to a store again for a while; has no clock itself."""

from collections import OrderedDict
from collections.abc import Iterable

MAX_NAMES = 65_536
KNOWN_SECONDS = 60.0
"""A store evicts without telling workers. If a name is computed again after this time, it was most
likely not found there."""
DECLINED_SECONDS = 5.0
"""A store that had no room for a block may soon have some."""


class KnownNames:
    """The newest names, each until its time is over."""

    def __init__(self, max_names: int = MAX_NAMES) -> None:
        self._max_names = max_names
        self._until: OrderedDict[bytes, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._until)

    def add(self, names: Iterable[bytes], until: float) -> None:
        """Note that `names` are not offered before the time `until`, in seconds."""
        for name in names:
            self._until[name] = until
            self._until.move_to_end(name)
        while len(self._until) > self._max_names:
            self._until.popitem(last=False)

    def holds(self, name: bytes, now: float) -> bool:
        """Whether `name` is not offered at the time `now`."""
        return self._until.get(name, -1.0) > now

    def clear(self) -> None:
        """Forget all names, because the store has changed."""
        self._until.clear()
