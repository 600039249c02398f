"""Names that a store is not asked about again, for a while. Pure; knows no clock."""

from collections import OrderedDict
from collections.abc import Iterable

MAX_NAMES = 65_536
KNOWN_SECONDS = 60.0
"""A store evicts without telling workers. A name that is computed again this much later was most
likely not found there."""
DECLINED_SECONDS = 5.0
"""A store that had no room for a block may soon have some."""


class KnownNames:
    """The newest names, each until it is too old."""

    def __init__(self, max_names: int = MAX_NAMES) -> None:
        self._max_names = max_names
        self._until: OrderedDict[bytes, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._until)

    def add(self, names: Iterable[bytes], until: float) -> None:
        """Note that `names` are not to be offered before `until`, in seconds."""
        for name in names:
            self._until[name] = until
            self._until.move_to_end(name)
        while len(self._until) > self._max_names:
            self._until.popitem(last=False)

    def holds(self, name: bytes, now: float) -> bool:
        """Whether `name` is not to be offered at `now`."""
        return self._until.get(name, -1.0) > now

    def clear(self) -> None:
        """Forget all: the store is another one."""
        self._until.clear()
