"""Publishes batches on a thread of its own, and answers requests for past batches and snapshots.
The event loop only puts batches into its queue."""

import itertools
import logging
import threading
import time
import uuid
from collections import Counter, deque
from collections.abc import Iterator
from typing import Final

import msgspec
import zmq

from pagewire_scheduler.core.blocks.cache_changes import (
    CLEARED,
    BlockContent,
    CacheChange,
    ChangeKind,
)
from pagewire_scheduler.kv_events.batch_queue import BatchQueue, CacheBatch
from pagewire_scheduler.kv_events.cache_mirror import CacheMirror
from pagewire_scheduler.kv_events.event_sockets import EventSockets, bound_endpoint
from pagewire_scheduler.kv_events.events_config import KvEventsConfig
from pagewire_scheduler.kv_events.wire_events import (
    STORE,
    CacheInstance,
    EventWriter,
    IdentifiedBatch,
    WireBatch,
    WireEvent,
)
from pagewire_scheduler.metrics.kv_events import KvEventMeter

MAX_REPLAY_BYTES: Final = 64 * 2**20
HEARTBEAT_SECONDS: Final = 1.0
CHUNK_EVENTS: Final = 256
MAX_GONE: Final = 4096
END_SEQUENCE: Final = (-1).to_bytes(8, "big", signed=True)
NO_SNAPSHOT: Final = (-2).to_bytes(8, "big", signed=True)
STOP_SECONDS: Final = 2.0

_SNAPSHOT_REST: Final = 4.0
"""A snapshot is followed by a pause of so many times the seconds that it took."""

_MAX_TOGETHER: Final = 32
"""Requests that one snapshot answers."""

_logger = logging.getLogger(__name__)


class KvEventPublisher:
    """A publisher; `close` ends it.

    Attributes:
        publisher_id: 16 bytes, others after every start.
        has_failed: Whether its thread has ended with an error, so that nothing is published.
    """

    def __init__(self, config: KvEventsConfig, queue: BatchQueue) -> None:
        """Open the sockets and start. Raises StartupError naming what cannot be opened."""
        self.publisher_id = uuid.uuid4().bytes
        self._config = config
        self._queue = queue
        self._sockets = EventSockets(config)
        self._writer = EventWriter(shows_salted=config.salted_tokens)
        self._mirror = CacheMirror()
        self._encoder = msgspec.msgpack.Encoder()
        self._meter = KvEventMeter()
        self._sequence = 0
        self._past: deque[tuple[bytes, bytes, bytes]] = deque()
        self._past_bytes = 0
        self._beat_at = time.monotonic() + HEARTBEAT_SECONDS
        self._snapshot_at = 0.0
        self._is_lagging = False
        self.has_failed = False
        self._heart_topic = config.topic.partition("{")[0].encode()
        self._thread = threading.Thread(target=self._run, name="kv-events", daemon=True)
        self._thread.start()
        self._meter.turned(is_up=True)

    @property
    def endpoints(self) -> dict[str, str]:
        """Where the sockets listen, by the keys of the configuration."""
        opened = {
            "endpoint": self._sockets.publisher,
            "replay_endpoint": self._sockets.replay,
            "snapshot_endpoint": self._sockets.snapshot,
        }
        return {key: bound_endpoint(one) for key, one in opened.items() if one is not None}

    def close(self) -> None:
        """Publish what is queued, and end."""
        if self._queue.is_closed:
            return
        self._queue.close()
        self._thread.join(STOP_SECONDS)
        self._meter.turned(is_up=False)
        if self._thread.is_alive():
            _logger.warning("KV events: the publisher does not end; its sockets stay open")
            return
        self._sockets.close()
        self._queue.release()

    # The thread

    def _run(self) -> None:
        try:
            self._serve()
        except Exception:
            _logger.exception("KV events: the publisher has failed; it is started again")
            self._meter.turned(is_up=False)
            self.has_failed = True

    def _serve(self) -> None:
        poller = zmq.Poller()
        poller.register(self._queue.wake_fd, zmq.POLLIN)
        for router in (self._sockets.replay, self._sockets.snapshot):
            if router is not None:
                poller.register(router, zmq.POLLIN)
        while True:
            ready = dict(poller.poll(self._poll_ms))
            self._queue.drain_wakes()
            while (batch := self._queue.take()) is not None:
                self._publish(batch)
            if self._queue.is_closed:
                return
            replay, snapshot = self._sockets.replay, self._sockets.snapshot
            if replay is not None and replay in ready:
                self._answer_replay(replay)
            if snapshot is not None and snapshot in ready and time.monotonic() >= self._snapshot_at:
                self._answer_snapshot(snapshot)
            self._beat()

    @property
    def _poll_ms(self) -> int:
        if self._sockets.snapshot is None:
            return 1000
        now = time.monotonic()
        if now < self._snapshot_at:
            time.sleep(min(0.01, self._snapshot_at - now))  # a request may wait, and keep it ready
        return max(0, round(1000 * (self._beat_at - now)))

    def _publish(self, batch: CacheBatch) -> None:
        self._sequence += batch.num_dropped
        self._is_lagging = batch.is_lagging
        if batch.instance.medium == STORE and CLEARED in batch.changes:
            self._remove_names(batch)
        kinds = Counter(change.kind.value for change in batch.changes)
        changes = batch.changes
        if batch.instance.medium == STORE:
            changes = [change for change in changes if change is not CLEARED]
        events = list(self._writer.events(batch.instance, changes))
        self._send(batch.instance.topic, batch.timestamp, events, batch.instance.rank)
        if batch.contents is not None and self._mirrors(batch.instance):
            self._mirror.reset(batch.instance, batch.contents)
        elif self._mirrors(batch.instance):
            self._mirror.apply(batch.instance, batch.changes)
        self._meter.published(kinds)

    def _mirrors(self, instance: CacheInstance) -> bool:
        """Whether the mirror has an instance: a store is removed name by name."""
        return self._sockets.snapshot is not None or instance.medium == STORE

    def _remove_names(self, batch: CacheBatch) -> None:
        """Publish that a store has none of its blocks; AllBlocksCleared is about workers alone."""
        names = map(BlockContent, self._mirror.names_of(batch.instance.rank))
        gone = (CacheChange(ChangeKind.REMOVED, content) for content in names)
        while part := list(itertools.islice(gone, MAX_GONE)):
            events = list(self._writer.events(batch.instance, part))
            self._send(batch.instance.topic, batch.timestamp, events, batch.instance.rank)

    def _beat(self) -> None:
        """Send an empty batch when there was no other for a while, if snapshots are served."""
        if self._sockets.snapshot is not None and time.monotonic() >= self._beat_at:
            self._send(self._heart_topic, time.time(), [], None)

    def _send(
        self, topic: bytes, timestamp: float, events: list[WireEvent], rank: int | None
    ) -> None:
        if self._sockets.snapshot is None:
            payload = self._encoder.encode(WireBatch(timestamp, events, rank))
        else:
            identified = IdentifiedBatch(timestamp, events, rank, self.publisher_id)
            payload = self._encoder.encode(identified)
        frames = (topic, self._sequence.to_bytes(8, "big"), payload)
        self._sequence += 1
        self._beat_at = time.monotonic() + HEARTBEAT_SECONDS
        self._sockets.publisher.send_multipart(frames)
        if self._sockets.replay is None:
            return
        self._past.append(frames)
        self._past_bytes += len(payload)
        while len(self._past) > self._config.buffer_steps or self._past_bytes > MAX_REPLAY_BYTES:
            self._past_bytes -= len(self._past.popleft()[2])

    def _answer_replay(self, router: "zmq.Socket[bytes]") -> None:
        """Send the past batches from a sequence number on, and the end marker."""
        frames = router.recv_multipart()
        envelope, request = _split(frames)
        if request is None or len(request) != 8:
            self._meter.requested("malformed")
            return
        self._meter.requested("replay")
        first = int.from_bytes(request, "big")
        for past in self._past:
            if int.from_bytes(past[1], "big") >= first:
                router.send_multipart((*envelope, *past))
        router.send_multipart((*envelope, b"", END_SEQUENCE, b""))

    def _answer_snapshot(self, router: "zmq.Socket[bytes]") -> None:
        """Send everything, as of the newest batch, to all who wait for it."""
        envelopes = []
        for _ in range(_MAX_TOGETHER):
            if not router.poll(0):
                break
            envelope, request = _split(router.recv_multipart())
            if request == b"snapshot":
                envelopes.append(envelope)
            else:
                self._meter.requested("malformed")
        if not envelopes:
            return
        began_at = time.monotonic()
        chunks = self._snapshot()
        newest = (self._sequence - 1).to_bytes(8, "big", signed=True)
        head = [newest if chunks is not None else NO_SNAPSHOT, self.publisher_id]
        for envelope in envelopes:
            self._meter.requested("no_snapshot" if chunks is None else "snapshot")
            router.send_multipart([*envelope, *head, *(chunks or ())])
        self._snapshot_at = time.monotonic() + _SNAPSHOT_REST * (time.monotonic() - began_at)

    def _snapshot(self) -> list[bytes] | None:
        """Return the chunks of a snapshot; None when none can be had now."""
        if self._is_lagging or len(self._mirror) > self._config.snapshot_max_blocks:
            return None
        chunks, num_bytes = [], 0
        for chunk in self._chunks():
            num_bytes += len(chunk)
            if num_bytes > self._config.snapshot_max_response_bytes:
                return None
            chunks.append(chunk)
        return chunks

    def _chunks(self) -> Iterator[bytes]:
        timestamp, rank = time.time(), -1
        events: list[WireEvent] = []
        for instance, event in self._mirror.snapshot(self._writer):
            if events and (instance.rank != rank or len(events) >= CHUNK_EVENTS):
                yield self._encoder.encode(WireBatch(timestamp, events, rank))
                events = []
                time.sleep(0)  # the event loop goes on
            rank = instance.rank
            events.append(event)
        if events:
            yield self._encoder.encode(WireBatch(timestamp, events, rank))


def _split(frames: list[bytes]) -> tuple[list[bytes], bytes | None]:
    """Return the envelope of a request with its delimiter, and its only frame, or None."""
    if len(frames) == 3 and frames[1] == b"":
        return frames[:2], frames[2]
    return frames[:1], None
