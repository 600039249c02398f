"""Names of blocks by content, until a block is written anew. Pure bookkeeping."""

from collections.abc import Iterable


class BlockNames:
    """Names of VALID blocks of one KV pool."""

    def __init__(self) -> None:
        self._name_of: dict[int, bytes] = {}

    def __len__(self) -> int:
        return len(self._name_of)

    def name(self, block: int, name: bytes) -> None:
        """Give `block` the name of its content, replacing any other."""
        self._name_of[block] = name

    def forget(self, blocks: Iterable[int]) -> None:
        """Drop the names of blocks whose content changes; nameless ones are fine."""
        for block in blocks:
            self._name_of.pop(block, None)

    def clear(self) -> None:
        """Drop all names."""
        self._name_of.clear()

    def held(self) -> dict[int, bytes]:
        """Return block id to name, a copy."""
        return dict(self._name_of)
