"""Notes what enters and leaves the prefix cache of one worker, in order, with the tokens of blocks.
The caller takes the notes; where no caller asks for them a pool has no such object."""

import enum
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pagewire_scheduler.core.blocks.prefix_cache import NameChain
from pagewire_shared.identity.ids import BlockName
from pagewire_shared.kv.arrays import pack_u32


class BlockContent(NamedTuple):
    """The content of a named block, as far as it is known.

    Attributes:
        name: Name of the block of the same tokens in the first cache group.
        group: Its cache group; None when unknown.
        parent: Name of the block before, in the first group; None for the first block of a
            sequence, and when unknown.
        tokens: Its token ids as little-endian u32; empty when unknown.
        salt: Tenant and cache salt, as in the name of the root.
        adapter: Content id of a LoRA adapter; empty for none.
    """

    name: BlockName
    group: int | None = None
    parent: BlockName | None = None
    tokens: bytes = b""
    salt: bytes = b""
    adapter: bytes = b""


class ChangeKind(enum.Enum):
    """The kinds of changes of a cache."""

    STORED = "stored"
    REMOVED = "removed"
    CLEARED = "cleared"


class CacheChange(NamedTuple):
    """One change; CLEARED alone has no `content`."""

    kind: ChangeKind
    content: BlockContent | None = None


CLEARED = CacheChange(ChangeKind.CLEARED)


class CacheChanges:
    """The named blocks of one worker's cache, and the changes since they were last taken.

    Attributes:
        contents: Content of each named block, in the order in which they were named.
        changes: Changes that were not taken yet.
        num_unknown: Blocks whose tokens are not known.
    """

    __slots__ = ("changes", "contents", "num_unknown")

    def __init__(self) -> None:
        self.contents: dict[BlockName, BlockContent] = {}
        self.changes: list[CacheChange] = []
        self.num_unknown = 0

    def stored(self, name: BlockName, content: BlockContent) -> None:
        """Note a block that was entered under `name`."""
        self.contents[name] = content
        self.num_unknown += not content.tokens
        self.changes.append(CacheChange(ChangeKind.STORED, content))

    def note(self, name: BlockName, content: BlockContent, *, is_new: bool) -> None:
        """Note a block that was entered, or the tokens of one that was there without them."""
        if is_new:
            self.stored(name, content)
        elif self.num_unknown:
            self.learn(name, content)

    def removed(self, name: BlockName) -> None:
        """Note a block that is found no longer; nothing after `cleared`."""
        content = self.contents.pop(name, None)
        if content is not None:
            self.num_unknown -= not content.tokens
            self.changes.append(CacheChange(ChangeKind.REMOVED, content))

    def cleared(self) -> None:
        """Note that no block is found any longer."""
        self.contents = {}
        self.num_unknown = 0
        self.changes = [CLEARED]

    def learn(self, name: BlockName, content: BlockContent) -> None:
        """Note the tokens of a block that was entered without them."""
        known = self.contents.get(name)
        if known is not None and not known.tokens and content.tokens:
            self.removed(name)
            self.stored(name, content)

    def learn_from(self, contents: Mapping[BlockName, BlockContent]) -> None:
        """Note the tokens of blocks that another attach of the worker knew."""
        for name in [name for name, known in self.contents.items() if not known.tokens]:
            if name in contents:
                self.learn(name, contents[name])

    def take(self) -> list[CacheChange]:
        """Return the changes since the last call."""
        changes, self.changes = self.changes, []
        return changes


def content_of(chain: NameChain, index: int, group: int, tokens: Sequence[int]) -> BlockContent:
    """Return the content of block `index` of `tokens` in a cache group."""
    start = index * chain.block_size
    return BlockContent(
        name=chain.name(index, tokens),
        group=group,
        parent=chain.name(index - 1, tokens) if index else None,
        tokens=pack_u32(tokens[start : start + chain.block_size]),
        salt=chain.salt,
        adapter=chain.adapter,
    )


def learn_prefix(
    changes: CacheChanges, chain: NameChain, tokens: Sequence[int], num_blocks: int, num_groups: int
) -> None:
    """Note the tokens of the first blocks of a sequence, which its worker had before."""
    for index in range(num_blocks if changes.num_unknown else 0):
        for group in range(num_groups):
            name = chain.name_in(group, index, tokens)
            known = changes.contents.get(name)
            if known is not None and not known.tokens:
                changes.learn(name, content_of(chain, index, group, tokens))
