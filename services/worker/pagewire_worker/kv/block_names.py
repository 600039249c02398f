"""Names of blocks by content; a block loses its name when it is written anew."""

from collections.abc import Iterable


class BlockNames:
    """Names of VALID blocks of one KV pool."""

    def __init__(self) -> None:
        self._name_of: dict[int, bytes] = {}
        # One block per name. Further blocks with the same content are rare, and kept apart.
        self._block_of: dict[bytes, int] = {}
        self._others: dict[bytes, set[int]] = {}
        # Names of blocks whose step is under way.
        self._promised_to: dict[int, bytes] = {}

    def __len__(self) -> int:
        return len(self._name_of)

    def name(self, block: int, name: bytes) -> None:
        """Give `block` the name of its content, replacing any other."""
        self.forget((block,))
        self._name_of[block] = name
        if self._block_of.setdefault(name, block) != block:
            self._others.setdefault(name, set()).add(block)

    def promise(self, block: int, name: bytes) -> None:
        """Promise a name to a block that a step under way fills; it is not VALID before."""
        self._promised_to[block] = name

    def is_promised(self, name: bytes) -> bool:
        """Return whether a block may get that name soon."""
        return name in self._promised_to.values()

    def keep(self, block: int, name: bytes) -> bool:
        """Give a block its promised name; return False if it was written anew since."""
        if self._promised_to.get(block) != name:
            return False
        self.name(block, name)
        return True

    def break_promises(self, blocks: Iterable[int]) -> None:
        """Drop the promises to `blocks`; names that blocks already have stay."""
        for block in blocks:
            self._promised_to.pop(block, None)

    def forget(self, blocks: Iterable[int]) -> None:
        """Drop the names of blocks whose content changes, and promises to them.

        Blocks without a name are allowed.
        """
        for block in blocks:
            self._promised_to.pop(block, None)
            name = self._name_of.pop(block, None)
            if name is not None:
                self._unmap(block, name)

    def find(self, name: bytes) -> int | None:
        """Return a VALID block of that name, or None."""
        return self._block_of.get(name)

    def has(self, block: int, name: bytes) -> bool:
        """Return whether `block` is VALID under that name."""
        return self._name_of.get(block) == name

    def clear(self) -> None:
        """Drop all names."""
        self._name_of.clear()
        self._promised_to.clear()
        self._block_of.clear()
        self._others.clear()

    def held(self) -> dict[int, bytes]:
        """Return a copy of the map from block id to name."""
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
