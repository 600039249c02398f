"""Names of blocks by content, until a block is written anew. Pure bookkeeping."""

from collections.abc import Iterable


class BlockNames:
    """Names of VALID blocks of one KV pool."""

    def __init__(self) -> None:
        self._name_of: dict[int, bytes] = {}
        # One block of each name; those that have the same content besides are apart, for few have.
        self._block_of: dict[bytes, int] = {}
        self._others: dict[bytes, set[int]] = {}

    def __len__(self) -> int:
        return len(self._name_of)

    def name(self, block: int, name: bytes) -> None:
        """Give `block` the name of its content, replacing any other."""
        self.forget((block,))
        self._name_of[block] = name
        if self._block_of.setdefault(name, block) != block:
            self._others.setdefault(name, set()).add(block)

    def forget(self, blocks: Iterable[int]) -> None:
        """Drop the names of blocks whose content changes; nameless ones are fine."""
        for block in blocks:
            name = self._name_of.pop(block, None)
            if name is not None:
                self._unmap(block, name)

    def find(self, name: bytes) -> int | None:
        """Return a VALID block of that name; None when there is none."""
        return self._block_of.get(name)

    def clear(self) -> None:
        """Drop all names."""
        self._name_of.clear()
        self._block_of.clear()
        self._others.clear()

    def held(self) -> dict[int, bytes]:
        """Return block id to name, a copy."""
        return dict(self._name_of)

    def _unmap(self, block: int, name: bytes) -> None:
        others = self._others.get(name)
        if others is None:
            del self._block_of[name]
            return
        if self._block_of[name] == block:
            self._block_of[name] = others.pop()
        else:
            others.remove(block)
        if not others:
            del self._others[name]
