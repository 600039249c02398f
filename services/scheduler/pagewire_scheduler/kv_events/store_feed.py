"""Collects what the index of KV stores gains and loses. Nothing is dropped: what has no room waits,
and a store with too much that waits is published anew, name after name."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from pagewire_scheduler.core.blocks.cache_changes import (
    CLEARED,
    BlockContent,
    CacheChange,
    ChangeKind,
)
from pagewire_scheduler.core.transfers.remote_index import RemoteIndex
from pagewire_scheduler.kv_events.wire_events import STORE, CacheInstance
from pagewire_shared.identity.ids import BlockName
from pagewire_shared.kv.name_set import NUM_SHARDS

MAX_BATCH_NAMES: Final = 1024
MAX_WAITING_NAMES: Final = 200_000
"""Changes of one store that wait for room in the queue, some 50 MB."""

Put = Callable[[CacheInstance, list[CacheChange]], bool]
"""Puts a batch into the queue; False when there is no room."""


@dataclass(slots=True)
class _PublishedStore:
    """A store as it is published.

    Attributes:
        waiting: Changes that were not put into the queue yet.
        num_listed: Shards of its names, by first byte, that were published whole. Changes in the
            others wait for their shard.
    """

    instance: CacheInstance
    num_listed: int = 0
    waiting: list[CacheChange] = field(default_factory=list)


class StoreFeed:
    """The feed of all KV stores."""

    def __init__(self, index: RemoteIndex, instance_of: Callable[[str], CacheInstance]) -> None:
        """Args: `instance_of` names a store to the outside."""
        self._index = index
        self._instance_of = instance_of
        self._stores: dict[str, _PublishedStore] = {}

    @property
    def ranks(self) -> set[int]:
        """The ranks of all stores."""
        return {store.instance.rank for store in self._stores.values()}

    def stored(self, store: str, names: Sequence[BlockName]) -> None:
        """Take note of blocks that are new in the index."""
        self._note(store, names, ChangeKind.STORED)

    def removed(self, store: str, names: Sequence[BlockName]) -> None:
        """Take note of blocks that leave the index."""
        self._note(store, names, ChangeKind.REMOVED)

    def cleared(self, store: str) -> None:
        """Take note of a store of which no block is known any longer."""
        published = self._of(store)
        published.waiting = [CLEARED]
        published.num_listed = NUM_SHARDS

    def begin(self) -> None:
        """Publish everything from now on: the publisher is new."""
        for store in self._index.addresses():
            published = self._of(store)
            published.waiting, published.num_listed = [], 0

    def flush(self, put: Put) -> None:
        """Put what waits into the queue, as far as there is room."""
        for store, published in self._stores.items():
            while published.waiting or published.num_listed < NUM_SHARDS:
                if not published.waiting:
                    self._list_some(store, published)
                    if not published.waiting:
                        break
                part = published.waiting[:MAX_BATCH_NAMES]
                if not put(published.instance, part):
                    break
                del published.waiting[:MAX_BATCH_NAMES]
                if not published.waiting:
                    break  # further shards with the next turn

    def _list_some(self, store: str, published: _PublishedStore) -> None:
        while published.num_listed < NUM_SHARDS and len(published.waiting) < MAX_BATCH_NAMES:
            names = self._index.names_in(store, published.num_listed)
            published.num_listed += 1
            published.waiting += [_change(name, ChangeKind.STORED) for name in names]

    def _note(self, store: str, names: Sequence[BlockName], kind: ChangeKind) -> None:
        published = self._of(store)
        listed = [name for name in names if name[0] < published.num_listed]
        published.waiting += [_change(name, kind) for name in listed]
        if len(published.waiting) > MAX_WAITING_NAMES:
            published.waiting, published.num_listed = [CLEARED], 0

    def _of(self, store: str) -> _PublishedStore:
        if store not in self._stores:
            self._stores[store] = _PublishedStore(self._instance_of(store))
        return self._stores[store]


def _change(name: BlockName, kind: ChangeKind) -> CacheChange:
    return CacheChange(kind, BlockContent(name))


def store_instance(rank: int, topic: str, address: str) -> CacheInstance:
    """Return how the store at `address` is named to the outside; it has blocks of all models."""
    return CacheInstance(
        rank=rank, topic=topic.format(worker=address, model="").encode(), medium=STORE
    )
