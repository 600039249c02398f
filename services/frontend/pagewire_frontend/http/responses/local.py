"""The responses of this process: running ones, stored ones, and the background tasks of those
without a client."""

import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import orjson

from pagewire_frontend.engine.engine import Engine
from pagewire_frontend.http.responses.background import BackgroundRun
from pagewire_frontend.http.responses.ids import not_found
from pagewire_frontend.http.responses.items import Item, is_whole
from pagewire_frontend.http.responses.pending_response import Body, PendingResponse
from pagewire_frontend.http.responses.run import ResponseRun
from pagewire_frontend.http.responses.store import ResponseStore, StoredResponse, StoreLimits
from pagewire_frontend.http.streaming.frame_log import FrameLog
from pagewire_shared.errors import InvalidRequestError


@dataclass(slots=True)
class _Running:
    run: ResponseRun
    background: BackgroundRun | None = None


class LocalResponses:
    """A ResponseDirectory of the responses that this process made. `close` it at the end."""

    def __init__(self, engine: Engine, tag: str, limits: StoreLimits) -> None:
        """Create the local responses.

        Args:
            engine: Opens the sessions.
            tag: Tag of this process in the ids of its responses.
        """
        self.tag = tag
        self.keeps_any = limits.max_responses > 0
        self._engine = engine
        self._store = ResponseStore(limits)
        self._running: dict[str, _Running] = {}

    async def open(self, pending: PendingResponse) -> ResponseRun:
        """Return a response that its caller drives and gives to `end`. Raises what `Engine.open`
        raises."""
        run = ResponseRun(self._engine, pending)
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

    def start(self, pending: PendingResponse) -> BackgroundRun:
        """Return a response that runs on its own."""
        run = ResponseRun(self._engine, pending)
        background = BackgroundRun(run, self._on_end, self._hold)
        self._running[pending.response_id] = _Running(run, background)
        return background

    def forget(self, response_id: str) -> None:
        """Drop a response whose id its client never got."""
        self._running.pop(response_id, None)
        self._store.drop(response_id)

    def close(self) -> None:
        """Cancel all running background responses."""
        for running in list(self._running.values()):
            if running.background is not None:
                running.background.cancel()

    async def get(self, response_id: str, tenant: str | None) -> Body:
        """Return the response object as it is now."""
        found = self._find(response_id, tenant)
        body: Body = found.run.body() if isinstance(found, _Running) else _json(found.body)
        return body

    async def cancel(self, response_id: str, tenant: str | None) -> Body:
        """End a background response; see ResponseDirectory."""
        found = self._find(response_id, tenant)
        is_background = (
            found.background is not None if isinstance(found, _Running) else found.is_background
        )
        if not is_background:
            raise InvalidRequestError(
                "only a response made with background true can be cancelled; the others end with "
                "their connection",
                field="response_id",
                code="not_a_background_response",
            )
        if isinstance(found, _Running) and found.background is not None:
            found.background.cancel()
        return await self.get(response_id, tenant)

    async def delete(self, response_id: str, tenant: str | None) -> None:
        """Forget a response. A background response ends; one with a client goes on for it."""
        found = self._find(response_id, tenant)
        self.forget(response_id)
        if isinstance(found, _Running) and found.background is not None:
            found.background.cancel()

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

    async def events(
        self, response_id: str, tenant: str | None, first: int
    ) -> AsyncIterator[list[bytes]]:
        """Return the events from number `first` on; see ResponseDirectory."""
        found = self._find(response_id, tenant)
        if isinstance(found, StoredResponse) and found.events is not None:
            log = FrameLog()
            log.append(found.events)
            log.end()
            return log.follow(first)
        if isinstance(found, _Running) and found.background and found.run.pending.has_replay:
            return found.background.log.follow(first)
        raise InvalidRequestError(
            "the events of this response are not kept: it was not made with background and stream "
            "true",
            field="stream",
        )

    def _find(self, response_id: str, tenant: str | None) -> _Running | StoredResponse:
        running = self._running.get(response_id)
        if running is not None and running.run.pending.tenant == tenant:
            return running
        stored = self._store.get(response_id, time.monotonic())
        # The error does not show whether another tenant has a response of this id.
        if running is not None or stored is None or stored.tenant != tenant:
            raise not_found(response_id)
        return stored

    def _hold(self, num_bytes: int) -> bool:
        return self._store.hold(num_bytes, time.monotonic())

    def _on_end(self, background: BackgroundRun) -> None:
        has_replay = background.run.pending.has_replay
        self._store_ended(background.run, tuple(background.log.since(0)) if has_replay else None)

    def _store_ended(self, run: ResponseRun, events: tuple[bytes, ...] | None) -> None:
        """Keep a response that is over, unless it was deleted meanwhile."""
        response_id = run.pending.response_id
        if self._running.pop(response_id, None) is None:
            return
        stored = StoredResponse(
            tenant=run.pending.tenant,
            is_background=run.pending.is_background,
            body=orjson.dumps(run.body()),
            input_items=orjson.dumps(list(run.pending.input_items)),
            events=events,
        )
        self._store.put(response_id, stored, time.monotonic())


def _json(text: bytes) -> Any:
    return orjson.loads(text)
