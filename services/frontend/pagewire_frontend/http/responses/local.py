"""The responses of this process: running ones, also those that go on without a client, and stored
ones."""

import time
from dataclasses import dataclass
from typing import Any

import orjson

from pagewire_frontend.engine.engine import Engine
from pagewire_frontend.http.kept_streams.directory import StreamReading
from pagewire_frontend.http.kept_streams.headers import ON_DISCONNECT
from pagewire_frontend.http.kept_streams.kept_stream import KeptState, KeptStream
from pagewire_frontend.http.kept_streams.local_streams import LocalStreams
from pagewire_frontend.http.responses.frames import frames, is_whole_frame
from pagewire_frontend.http.responses.ids import not_found, tag_of
from pagewire_frontend.http.responses.items import Item, is_whole
from pagewire_frontend.http.responses.pending_response import Body, PendingResponse
from pagewire_frontend.http.responses.run import ResponseRun
from pagewire_frontend.http.responses.store import ResponseStore, StoredResponse, StoreLimits
from pagewire_frontend.http.streaming.frame_log import FrameLog
from pagewire_shared.errors import InvalidRequestError


@dataclass(slots=True)
class _Running:
    """A response that runs.

    Attributes:
        stream: Its kept stream; None where it ends with its client.
        hold: Keeps the stream while it runs in the background.
    """

    run: ResponseRun
    stream: KeptStream | None = None
    hold: StreamReading | None = None

    @property
    def is_background(self) -> bool:
        """Whether it goes on without a reader."""
        return self.run.pending.is_background

    def end_early(self) -> None:
        """End it where it is, if it has no client to do so."""
        if self.stream is not None and self.stream.state is KeptState.RUNNING:
            last = frames(self.run.cancel())
            self.stream.end_early(last if self.run.pending.has_replay else [])


class LocalResponses:
    """A ResponseDirectory of the responses that this process made, or makes again."""

    def __init__(
        self, engine: Engine, tag: str, limits: StoreLimits, streams: LocalStreams
    ) -> None:
        """Create the local responses.

        Args:
            engine: Opens the sessions.
            tag: Tag of this process in the ids of its responses.
            streams: Keeps those that go on without their client.
        """
        self.tag = tag
        self.keeps_any = limits.max_responses > 0
        self.engine = engine
        self._streams = streams
        self._store = ResponseStore(limits)
        self._running: dict[str, _Running] = {}

    @property
    def is_ending(self) -> bool:
        """Whether this process ends, and others go on with what it kept."""
        return self._streams.is_ending

    def has(self, response_id: str) -> bool:
        """Whether a response is here, or can only be here."""
        is_own = tag_of(response_id) in (None, self.tag)
        is_known = response_id in self._running or self._store.has(response_id, time.monotonic())
        return is_own or is_known

    async def open(self, pending: PendingResponse) -> ResponseRun:
        """Return a response that its caller drives and gives to `end`. Raises what `Engine.open`
        raises."""
        run = ResponseRun(self.engine, pending)
        await run.open()
        if pending.is_stored:
            self._running[pending.response_id] = _Running(run)
        return run

    def end(self, run: ResponseRun) -> None:
        """Take a response from its caller; a response that still runs is cancelled. Again is
        allowed."""
        run.cancel()
        run.close()
        self._store_ended(run, None)

    def begin(self, run: ResponseRun) -> None:
        """Take a response that runs in the task of its kept stream, which then calls `ended`."""
        stream = self._streams.find(run.pending.response_id)
        if stream is not None:
            hold = self._streams.reading(stream, 0) if run.pending.is_background else None
            self._running[stream.stream_id] = _Running(run, stream, hold)

    def note_failure(self, run: ResponseRun) -> None:
        """Note that the events of a kept response report its failure."""
        running = self._running.get(run.pending.response_id)
        if running is not None and running.stream is not None:
            running.stream.error = run.error

    def ended(self, run: ResponseRun) -> None:
        """Store a response whose kept stream has ended, unless another frontend goes on with it."""
        running = self._running.get(run.pending.response_id)
        stream = running.stream if running is not None else None
        error = stream.error if stream is not None else None
        if error is not None and run.moves(error):
            del self._running[run.pending.response_id]
        elif error is not None:
            run.fail(error)
        last = frames(run.cancel())
        run.close()
        if running is not None and running.hold is not None:
            running.hold.close()
        events = None
        if stream is not None and run.pending.has_replay:
            if not self.is_ending:
                # Dropped while it ran, since it had no reader.
                stream.log.append(last)
            events = tuple(stream.log.since(0))
        self._store_ended(run, events)

    async def get(self, response_id: str, tenant: str | None) -> Body:
        """Return the response object as it is now."""
        found = self._find(response_id, tenant)
        body: Body = found.run.body() if isinstance(found, _Running) else _json(found.body)
        return body

    async def cancel(self, response_id: str, tenant: str | None) -> Body:
        """End a background response; see ResponseDirectory."""
        found = self._find(response_id, tenant)
        if not found.is_background:
            raise InvalidRequestError(
                "only a response made with background true can be cancelled; the others end with "
                "their connection",
                field="response_id",
                code="not_a_background_response",
            )
        if isinstance(found, _Running):
            found.end_early()
        return await self.get(response_id, tenant)

    async def delete(self, response_id: str, tenant: str | None) -> None:
        """Forget a response, and end one that goes on without its client; see ResponseDirectory."""
        found = self._find(response_id, tenant)
        self._running.pop(response_id, None)
        self._store.drop(response_id)
        if isinstance(found, _Running):
            found.end_early()
            if found.hold is not None:
                found.hold.close()
        stream = self._streams.find(response_id)
        if stream is not None:
            self._streams.drop(stream)

    async def input_items(self, response_id: str, tenant: str | None) -> list[Item]:
        """Return the whole conversation before the answer, oldest first."""
        found = self._find(response_id, tenant)
        if isinstance(found, _Running):
            return list(found.run.pending.input_items)
        return list(_json(found.input_items))

    async def conversation(self, response_id: str, tenant: str | None) -> list[Item]:
        """Return the items that a next response builds on; see ResponseDirectory."""
        found = self._find(response_id, tenant)
        # A response that is over may not be stored yet, but its client knows already.
        if isinstance(found, _Running) and not found.run.is_over:
            raise InvalidRequestError(
                "the response of previous_response_id has not ended yet",
                field="previous_response_id",
            )
        body = await self.get(response_id, tenant)
        said = [item for item in body["output"] if is_whole(item)]
        return [*await self.input_items(response_id, tenant), *said]

    async def events(self, response_id: str, tenant: str | None, first: int) -> StreamReading:
        """Begin to read the events from number `first` on; see ResponseDirectory."""
        stream = self._streams.find(response_id)
        # Also of a response that is not stored.
        if stream is not None and stream.tenant == tenant and _has_events(stream):
            return self._streams.reading(stream, first)
        found = self._find(response_id, tenant)
        if isinstance(found, StoredResponse) and found.events is not None:
            log = FrameLog()
            log.append(found.events)
            log.end()
            return StreamReading(log.follow(first), lambda: None)
        raise InvalidRequestError(
            "the events of this response are not kept: it was not made with stream true, and "
            f"background true or {ON_DISCONNECT}",
            field="stream",
        )

    def _find(self, response_id: str, tenant: str | None) -> _Running | StoredResponse:
        running = self._running.get(response_id)
        pending = running.run.pending if running is not None else None
        if running and pending and pending.tenant == tenant and pending.is_stored:
            return running
        stored = self._store.get(response_id, time.monotonic())
        if running is None and stored is None:
            self._streams.check_lost(response_id, tenant)
        # The error does not show whether another tenant has a response of this id.
        if running is not None or stored is None or stored.tenant != tenant:
            raise not_found(response_id)
        return stored

    def _store_ended(self, run: ResponseRun, events: tuple[bytes, ...] | None) -> None:
        """Keep a response that is over, unless it was deleted meanwhile."""
        response_id = run.pending.response_id
        if self._running.pop(response_id, None) is None or not run.pending.is_stored:
            return
        stored = StoredResponse(
            tenant=run.pending.tenant,
            is_background=run.pending.is_background,
            body=orjson.dumps(run.body()),
            input_items=orjson.dumps(list(run.pending.input_items)),
            events=events,
        )
        self._store.put(response_id, stored, time.monotonic())


def _has_events(stream: KeptStream) -> bool:
    return not any(is_whole_frame(frame) for frame in stream.log.batch(0)[:1])


def _json(text: bytes) -> Any:
    return orjson.loads(text)
