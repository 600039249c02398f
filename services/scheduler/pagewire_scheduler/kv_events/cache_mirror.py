"""Keeps what subscribers know of all caches, and writes it anew as a snapshot, parents first.
It belongs to the publishing thread."""

from collections.abc import Iterable, Iterator, Mapping

from pagewire_scheduler.core.blocks.cache_changes import BlockContent, CacheChange, ChangeKind
from pagewire_scheduler.kv_events.wire_events import STORE, CacheInstance, EventWriter, WireEvent
from pagewire_shared.identity.ids import BlockName
from pagewire_shared.kv.name_set import NameSet

CacheKey = tuple[BlockName, int | None]


def key_of(content: BlockContent) -> CacheKey:
    """Return the identity of a block in its cache: the same tokens are in every cache group."""
    return content.name, content.group


class CacheMirror:
    """The blocks of every instance by rank, as the batches up to now have said them."""

    def __init__(self) -> None:
        self._instances: dict[int, CacheInstance] = {}
        self._blocks: dict[int, dict[CacheKey, BlockContent]] = {}
        self._names: dict[int, NameSet] = {}

    def __len__(self) -> int:
        num_blocks = sum(len(blocks) for blocks in self._blocks.values())
        return num_blocks + sum(len(names) for names in self._names.values())

    def apply(self, instance: CacheInstance, changes: Iterable[CacheChange]) -> None:
        """Take the changes of a batch."""
        self._instances[instance.rank] = instance
        if instance.medium == STORE:
            self._apply_names(instance.rank, changes)
            return
        blocks = self._blocks.setdefault(instance.rank, {})
        for kind, content in changes:
            if content is None:
                blocks.clear()
            elif kind is ChangeKind.REMOVED:
                blocks.pop(key_of(content), None)
            else:
                blocks[key_of(content)] = content
        if not blocks:
            del self._instances[instance.rank]
            del self._blocks[instance.rank]

    def _apply_names(self, rank: int, changes: Iterable[CacheChange]) -> None:
        """Take the changes of a store, of whose blocks the names alone are known."""
        names = self._names.setdefault(rank, NameSet())
        for kind, content in changes:
            if content is None:
                names.clear()
            elif kind is ChangeKind.REMOVED:
                names.discard_all((content.name,))
            else:
                names.add(content.name)

    def reset(self, instance: CacheInstance, contents: Mapping[BlockName, BlockContent]) -> None:
        """Take all that an instance has, after batches of it were dropped."""
        self._instances[instance.rank] = instance
        self._blocks[instance.rank] = {key_of(content): content for content in contents.values()}

    def names_of(self, rank: int) -> Iterator[BlockName]:
        """Iterate over the names of a store; it must not change meanwhile."""
        return iter(self._names.get(rank, ()))

    def snapshot(self, writer: EventWriter) -> Iterator[tuple[CacheInstance, WireEvent]]:
        """Yield the events that build everything in an index that has nothing of it."""
        for rank, instance in list(self._instances.items()):
            if instance.medium == STORE:
                held = map(BlockContent, self.names_of(rank))
                changes = (CacheChange(ChangeKind.STORED, content) for content in held)
                for event in writer.events(instance, changes):
                    yield instance, event
                continue
            blocks = self._blocks[rank]
            ordered, orphans = _ordered(blocks, writer)
            stored = (CacheChange(ChangeKind.STORED, content) for content in ordered)
            for event in writer.events(instance, stored):
                yield instance, event
            for content in orphans:
                yield instance, writer.bare(instance, content)


def _ordered(
    blocks: Mapping[CacheKey, BlockContent], writer: EventWriter
) -> tuple[list[BlockContent], list[BlockContent]]:
    """Return the blocks, parents before children, and those whose parent is gone.

    Their parents were evicted before them: what they follow cannot be said any more.
    """
    children: dict[BlockName, list[BlockContent]] = {}
    ready: list[BlockContent] = []
    known = {name for (name, _), content in blocks.items() if writer.has_tokens(content)}
    orphans = []
    for content in blocks.values():
        if content.parent is None or not writer.has_tokens(content):
            ready.append(content)
        elif content.parent in known:
            children.setdefault(content.parent, []).append(content)
        else:
            orphans.append(content)
    ready.reverse()
    ordered = []
    named: set[BlockName] = set()
    while ready:
        content = ready.pop()
        ordered.append(content)
        if content.name not in named and writer.has_tokens(content):
            named.add(content.name)
            ready += reversed(children.pop(content.name, []))
    orphans += [content for waiting in children.values() for content in waiting]
    return ordered, orphans
