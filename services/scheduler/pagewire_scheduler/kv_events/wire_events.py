"""Turns changes of a cache into vLLM's messages: msgpack of a batch, whose events are maps with
their type. A block that follows the one before joins its event."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from pagewire_scheduler.core.blocks.cache_changes import BlockContent, CacheChange, ChangeKind
from pagewire_shared.identity.ids import BlockName
from pagewire_shared.kv.arrays import unpack_u32

DEVICE: Final = "GPU"
"""vLLM's word for the cache of a worker, whatever its device."""

STORE: Final = "CPU"
"""vLLM's word for what lies behind it; a KV store has tiers of its own."""

MAX_EVENT_BLOCKS: Final = 256


class StoredEvent(msgspec.Struct, omit_defaults=True, gc=False, tag="BlockStored"):
    """Blocks that follow one another have become findable."""

    block_hashes: list[int]
    parent_block_hash: int | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None
    medium: str | None
    lora_name: str | None
    extra_keys: list[list[str] | None] | None = None
    group_idx: int | None = None
    kv_cache_spec_kind: str | None = None
    kv_cache_spec_sliding_window: int | None = None


class RemovedEvent(msgspec.Struct, omit_defaults=True, gc=False, tag="BlockRemoved"):
    """Blocks are not findable any longer."""

    block_hashes: list[int]
    medium: str | None
    group_idx: int | None = None


class ClearedEvent(msgspec.Struct, omit_defaults=True, gc=False, tag="AllBlocksCleared"):
    """No block is findable any longer."""


WireEvent = StoredEvent | RemovedEvent | ClearedEvent


class WireBatch(msgspec.Struct, array_like=True, omit_defaults=True, gc=False):
    """The payload of one message."""

    ts: float
    events: list[Any]
    data_parallel_rank: int | None = None


class IdentifiedBatch(WireBatch, array_like=True, omit_defaults=True, gc=False):
    """The payload where snapshots are served: it names the life of the publisher."""

    publisher_id: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheInstance:
    """A cache as it is named to the outside.

    Attributes:
        rank: Its `data_parallel_rank`; no two at a time have the same.
        topic: Text in front of its batches.
        medium: DEVICE or STORE.
        block_size: Tokens of a block; 0 for a store, which has blocks of all sizes.
        windows: Look-back of each cache group, None for all positions.
    """

    rank: int
    topic: bytes
    medium: str = DEVICE
    block_size: int = 0
    windows: tuple[int | None, ...] = ()


def hash_of(name: BlockName) -> int:
    """Return a name as vLLM's integer hash: its last 8 bytes, big-endian."""
    return int.from_bytes(name[-8:], "big")


class EventWriter:
    """Writes the events of changes."""

    def __init__(self, *, shows_salted: bool) -> None:
        """Args: `shows_salted` says whether token ids of blocks with a salt are written."""
        self._shows_salted = shows_salted

    def events(
        self, instance: CacheInstance, changes: Iterable[CacheChange]
    ) -> Iterator[WireEvent]:
        """Yield the events of `changes`, in order."""
        newest: WireEvent | None = None
        last: BlockContent | None = None
        for change in changes:
            content = change.content
            if content is None:
                event: WireEvent = ClearedEvent()
            elif change.kind is ChangeKind.REMOVED:
                event = RemovedEvent([hash_of(content.name)], instance.medium, content.group)
            else:
                event = self.stored(instance, content)
            if newest is not None and _join(newest, event, last, content):
                last = content
                continue
            if newest is not None:
                yield newest
            newest, last = event, content
        if newest is not None:
            yield newest

    def has_tokens(self, content: BlockContent) -> bool:
        """Whether the tokens of a block are known and may be shown."""
        return bool(content.tokens) and (not content.salt or self._shows_salted)

    def stored(self, instance: CacheInstance, content: BlockContent) -> StoredEvent:
        """Return the event of one block."""
        if not self.has_tokens(content):
            return self.bare(instance, content)
        group = content.group or 0
        window = instance.windows[group] if group < len(instance.windows) else None
        keys = [content.adapter.hex()] if content.adapter else []
        if content.salt and content.parent is None:
            keys.append(content.salt.hex())
        return StoredEvent(
            block_hashes=[hash_of(content.name)],
            parent_block_hash=None if content.parent is None else hash_of(content.parent),
            token_ids=unpack_u32(content.tokens),
            block_size=instance.block_size,
            lora_id=None,
            medium=instance.medium,
            lora_name=content.adapter.hex() or None,
            extra_keys=[keys or None],
            group_idx=group,
            kv_cache_spec_kind="full_attention" if window is None else "sliding_window",
            kv_cache_spec_sliding_window=window,
        )

    def bare(self, instance: CacheInstance, content: BlockContent) -> StoredEvent:
        """Return the event of a block by its hash alone, as vLLM's of offloaded blocks."""
        return StoredEvent(
            block_hashes=[hash_of(content.name)],
            parent_block_hash=None,
            token_ids=[],
            block_size=0,
            lora_id=None,
            medium=instance.medium,
            lora_name=None,
            group_idx=content.group,
        )


def _join(
    newest: WireEvent, event: WireEvent, last: BlockContent | None, content: BlockContent | None
) -> bool:
    """Add `event` to `newest` where one event may say both; return whether it did."""
    if isinstance(newest, RemovedEvent) and isinstance(event, RemovedEvent):
        if newest.group_idx != event.group_idx or len(newest.block_hashes) >= MAX_EVENT_BLOCKS:
            return False
        newest.block_hashes += event.block_hashes
        return True
    if not isinstance(newest, StoredEvent) or not isinstance(event, StoredEvent):
        return False
    assert last is not None
    assert content is not None
    is_bare = not newest.token_ids and not event.token_ids
    follows = bool(newest.token_ids and event.token_ids) and content.parent == last.name
    is_alike = newest.group_idx == event.group_idx and newest.lora_name == event.lora_name
    if not (is_bare or follows) or not is_alike or len(newest.block_hashes) >= MAX_EVENT_BLOCKS:
        return False
    newest.block_hashes += event.block_hashes
    newest.token_ids += event.token_ids
    if newest.extra_keys is not None and event.extra_keys is not None:
        newest.extra_keys += event.extra_keys
    return True
