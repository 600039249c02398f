"""One WatchBlocks stream: sends the stored names, then the events of the store's log."""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from itertools import islice

from pagewire_kvstore.blocks.event_log import BlockChange, BlockEvent, EventLog
from pagewire_kvstore.store.block_store import BlockStore
from pagewire_kvstore.streams.convert import MAX_NAMES, join_names
from pagewire_protos.kvstore.v1 import kv_store_pb2
from pagewire_shared.identity.ids import BlockName

_EVENTS_AT_ONCE = 256


class WatchStream:
    """Serves one watcher. A watcher that is too slow for the log gets `cleared` and a new listing;
    no events are queued for it."""

    def __init__(self, store: BlockStore, events: EventLog, store_id: bytes) -> None:
        self._store = store
        self._events = events
        self._store_id = store_id

    async def responses(
        self, request: kv_store_pb2.WatchBlocksRequest
    ) -> AsyncGenerator[kv_store_pb2.WatchBlocksResponse, None]:
        """Yield events from the watcher's last position, for ever."""
        changed = asyncio.Event()
        self._events.subscribe(changed.set)
        try:
            position = self._resumed(request)
            is_first = not request.HasField("from_sequence")
            while True:
                if position is None:
                    newest = self._events.next_sequence - 1
                    names = self._store.names()
                    for response in _listing(newest, names, must_forget=not is_first):
                        yield response
                    position, is_first = newest + 1, False
                changed.clear()
                while self._events.holds(position):
                    batch = list(islice(self._events.since(position), _EVENTS_AT_ONCE))
                    for event in batch:
                        yield _response(event)
                    position += len(batch)
                    if not batch:
                        await changed.wait()
                        changed.clear()
                position = None
        finally:
            self._events.unsubscribe(changed.set)

    def _resumed(self, request: kv_store_pb2.WatchBlocksRequest) -> int | None:
        """Return the sequence number to continue at; None when the watcher needs a listing."""
        if not request.HasField("from_sequence") or request.store_id != self._store_id:
            return None
        position = request.from_sequence
        return position if self._events.holds(position) else None


def _listing(
    newest: int, names: Sequence[BlockName], *, must_forget: bool
) -> Iterator[kv_store_pb2.WatchBlocksResponse]:
    """Yield all names; at least one message, because it carries the watcher's position."""
    if must_forget:
        yield _response(BlockEvent(newest, BlockChange.CLEARED))
    for start in range(0, len(names) if must_forget else max(1, len(names)), MAX_NAMES):
        part = tuple(names[start : start + MAX_NAMES])
        yield _response(BlockEvent(newest, BlockChange.STORED, part))


def _response(event: BlockEvent) -> kv_store_pb2.WatchBlocksResponse:
    names = join_names(event.names)
    response = kv_store_pb2.WatchBlocksResponse(sequence=event.sequence)
    match event.change:
        case BlockChange.STORED:
            response.stored.names = names
            response.stored.SetInParent()
        case BlockChange.REMOVED:
            response.removed.names = names
            response.removed.SetInParent()
        case BlockChange.CLEARED:
            response.cleared.SetInParent()
    return response
