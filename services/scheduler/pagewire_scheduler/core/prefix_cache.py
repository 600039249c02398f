"""Names of blocks: the chain of names of a sequence and the index from name to block. Holds no
content."""

from collections.abc import Iterator, Sequence

from pagewire_shared.block_hash import block_name
from pagewire_shared.ids import BlockName


class PrefixCache:
    """Name -> block of one worker's pool."""

    __slots__ = ("_blocks",)

    def __init__(self) -> None:
        self._blocks: dict[BlockName, int] = {}

    def __len__(self) -> int:
        return len(self._blocks)

    def items(self) -> Iterator[tuple[BlockName, int]]:
        """Iterate over (name, block), for audits."""
        return iter(self._blocks.items())

    def find(self, name: BlockName) -> int | None:
        """Return the block of that name, or None."""
        return self._blocks.get(name)

    def put(self, name: BlockName, block: int) -> bool:
        """Enter a block; False when the name is taken (the first one stays)."""
        return self._blocks.setdefault(name, block) == block

    def drop(self, name: BlockName) -> None:
        """Remove a name that is known."""
        del self._blocks[name]


class NameChain:
    """Names of the full blocks of one sequence, computed as far as somebody has asked.

    Lazy because a long prompt without a hit would otherwise be hashed at once, ahead of every step
    of everybody else; so the cost follows the chunks.
    """

    __slots__ = ("_names", "block_size", "root")

    def __init__(self, root: BlockName, block_size: int) -> None:
        self.root = root
        self.block_size = block_size
        self._names: list[BlockName] = []

    def fork(self) -> "NameChain":
        """Return a chain with the names known so far, for a sequence that goes its own way."""
        copy = NameChain(self.root, self.block_size)
        copy._names = self._names.copy()
        return copy

    def name(self, index: int, tokens: Sequence[int]) -> BlockName:
        """Return the name of block `index` of `tokens`, all of whose ids must be known."""
        names, size = self._names, self.block_size
        while len(names) <= index:
            start = len(names) * size
            ids = tokens[start : start + size]
            assert len(ids) == size, "a block is named before all its ids are known"
            names.append(block_name(names[-1] if names else self.root, ids))
        return names[index]


def find_prefix(cache: PrefixCache, chain: NameChain, tokens: Sequence[int]) -> list[int]:
    """Return the cached blocks of the longest prefix of `tokens`, of at most len - 1 tokens.

    The last token is always computed: its logits are needed.
    """
    blocks: list[int] = []
    for index in range((len(tokens) - 1) // chain.block_size):
        block = cache.find(chain.name(index, tokens))
        if block is None:
            break
        blocks.append(block)
    return blocks
