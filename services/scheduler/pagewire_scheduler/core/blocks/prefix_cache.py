"""The prefix cache: names (content hashes) of blocks. It has the chain of names of a sequence and
the index from name to block."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from pagewire_scheduler.core.blocks.cache_groups import ONE_GROUP, RELEASED, CacheGroups
from pagewire_shared.identity.ids import BlockName
from pagewire_shared.kv.block_hash import block_name, group_name

NAME_BYTES: Final = 16

RootKey = tuple[bytes, bytes, str, int]
"""The inputs of names besides salt and tokens: model, layout, element type and block size."""


class PrefixCache:
    """Name -> block of one worker's pool.

    Attributes:
        blocks: Block by name; read-only outside this class.
    """

    __slots__ = ("blocks",)

    def __init__(self) -> None:
        self.blocks: dict[BlockName, int] = {}

    def __len__(self) -> int:
        return len(self.blocks)

    def items(self) -> Iterator[tuple[BlockName, int]]:
        """Iterate over (name, block), for audits."""
        return iter(self.blocks.items())

    def find(self, name: BlockName) -> int | None:
        """Return the block of that name, or None."""
        return self.blocks.get(name)

    def put(self, name: BlockName, block: int) -> bool:
        """Enter a block; False when the name is taken (the first one stays)."""
        return self.blocks.setdefault(name, block) == block

    def drop(self, name: BlockName) -> None:
        """Remove a name that is known."""
        del self.blocks[name]


@dataclass(frozen=True, slots=True)
class GivenNames:
    """Names of the first blocks of a prompt, sent along with it.

    Attributes:
        root: Parent of the first name.
        packed: 16 bytes per block.
    """

    root: BlockName
    block_size: int
    packed: bytes


class NameChain:
    """Names of the full blocks of one sequence, computed on demand.

    Hashing a long prompt at once would delay the steps of all other sequences; on demand, the cost
    follows the chunks. Names that came with the request are trusted if they have the same root.
    """

    __slots__ = (
        "_given",
        "_names",
        "_num_given",
        "adapter",
        "block_size",
        "root",
        "root_key",
        "salt",
    )

    def __init__(
        self,
        root: BlockName,
        block_size: int,
        root_key: RootKey | None = None,
        given: GivenNames | None = None,
        *,
        salt: bytes = b"",
        adapter: bytes = b"",
    ) -> None:
        """Begin at `root`, which was made of `root_key`, salt and adapter."""
        self.root = root
        self.root_key = root_key
        self.salt, self.adapter = salt, adapter
        self.block_size = block_size
        is_own = given is not None and (given.root, given.block_size) == (root, block_size)
        self._given = given.packed if is_own and given is not None else b""
        self._num_given = len(self._given) // NAME_BYTES
        self._names: list[BlockName] = []  # of the blocks after the given ones

    def fork(self) -> "NameChain":
        """Return a chain with the names known so far, for a forked sequence."""
        copy = NameChain(
            self.root, self.block_size, self.root_key, salt=self.salt, adapter=self.adapter
        )
        copy._given, copy._num_given = self._given, self._num_given
        copy._names = self._names.copy()
        return copy

    def name_in(self, group: int, index: int, tokens: Sequence[int]) -> BlockName:
        """Return the name of block `index` of `tokens` in a cache group."""
        return group_name(self.name(index, tokens), group)

    def name(self, index: int, tokens: Sequence[int]) -> BlockName:
        """Return the name of block `index` of `tokens` in the first cache group.

        All ids of the block and before it must be known.
        """
        if index < self._num_given:
            at = index * NAME_BYTES
            return BlockName(self._given[at : at + NAME_BYTES])
        names, size = self._names, self.block_size
        index -= self._num_given
        while len(names) <= index:
            start = (self._num_given + len(names)) * size
            ids = tokens[start : start + size]
            assert len(ids) == size, "a block is named before all its ids are known"
            names.append(block_name(self._last, ids))
        return names[index]

    @property
    def _last(self) -> BlockName:
        if self._names:
            return self._names[-1]
        return BlockName(self._given[-NAME_BYTES:]) if self._given else self.root


@dataclass(slots=True)
class CachedPrefix:
    """Cached blocks that a sequence may start with.

    Attributes:
        groups: Block ids in order of position, one list per cache group, all of one length;
            RELEASED in place of those that the sequence will not read.
    """

    groups: list[list[int]]

    def __len__(self) -> int:
        return len(self.groups[0])

    @property
    def held(self) -> list[int]:
        """The blocks, of all groups."""
        if len(self.groups) == 1:
            return self.groups[0]
        return [block for blocks in self.groups for block in blocks if block != RELEASED]


def find_prefix(
    cache: PrefixCache,
    chain: NameChain,
    tokens: Sequence[int],
    groups: CacheGroups = ONE_GROUP,
) -> CachedPrefix:
    """Return the cached blocks of the longest prefix of `tokens`, of at most len - 1 tokens.

    The last token is always computed: its logits are needed.
    """
    blocks: list[int] = []
    for index in range((len(tokens) - 1) // chain.block_size):
        block = cache.find(chain.name(index, tokens))
        if block is None:
            break
        blocks.append(block)
    if len(groups) == 1:
        return CachedPrefix([blocks])
    return _in_all(cache, chain, tokens, groups, len(blocks))


def _in_all(
    cache: PrefixCache, chain: NameChain, tokens: Sequence[int], groups: CacheGroups, most: int
) -> CachedPrefix:
    """Return the longest prefix of at most `most` blocks that all groups have."""

    def find(group: int, index: int) -> int | None:
        return cache.find(chain.name_in(group, index, tokens))

    for group, window in enumerate(groups.windows):
        if window is None:
            most = next((at for at in range(most) if find(group, at) is None), most)
    size = chain.block_size
    end = groups.longest_end(most, size, lambda group, at: find(group, at) is not None)
    rows: list[list[int]] = []
    for group in range(len(groups)):
        first = groups.first_needed(group, end, size)
        found = [find(group, index) for index in range(first, end)]
        rows.append([RELEASED] * first + [block for block in found if block is not None])
    return CachedPrefix(rows)


def prefix_length(cache: PrefixCache, chain: NameChain, tokens: Sequence[int]) -> int:
    """Estimate how many blocks `find_prefix` would return, in about 2 log2 of so many lookups.

    It assumes that all blocks before a cached block are cached, too. This usually holds; otherwise
    the result is too large. It is good enough for placement, and not for starting a sequence.
    """
    end = (len(tokens) - 1) // chain.block_size
    first, step = 0, 1  # all blocks before `first` are cached
    while first < end and cache.find(chain.name(min(first + step, end) - 1, tokens)) is not None:
        first = min(first + step, end)
        step *= 2
    last = min(first + step, end)  # the block before `last` is missing, unless `last` is the end
    while first < last:
        middle = (first + last) // 2
        if cache.find(chain.name(middle, tokens)) is None:
            last = middle
        else:
            first = middle + 1
    return first
