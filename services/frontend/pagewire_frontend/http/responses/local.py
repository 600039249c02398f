"""The responses of this process: those that run and can be asked for, those that are kept, and the
tasks of those that go on without a client."""

import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import orjson

from pagewire_frontend.engine.engine import Engine
from pagewire_frontend.http.responses.background import BackgroundRun
from pagewire_frontend.http.responses.errors import not_found
from pagewire_frontend.http.responses.event_log import ResponseEventLog
from pagewire_frontend.http.responses.items import Item, is_whole
from pagewire_frontend.http.responses.pending_response import Body, ResponseDraft
from pagewire_frontend.http.responses.run import ResponseRun
from pagewire_frontend.http.responses.store import ResponseStore, StoredResponse, StoreLimits
from pagewire_shared.errors import InvalidRequestError


@dataclass(slots=True)
class _Running:
    run: ResponseRun
    background: BackgroundRun | None = None


class LocalResponses:
    """A ResponseDirectory of what this process made. `close` it at the end."""

    def __init__(self, engine: Engine, tag: str, limits: StoreLimits) -> None:
        """Args: `tag`, names this process in the ids of its responses."""
        self.tag = tag
        self.keeps_any = limits.max_responses > 0
        self._engine = engine
        self._store = ResponseStore(limits)
        self._running: dict[str, _Running] = {}

    async def open(self, draft: ResponseDraft) -> ResponseRun:
        """Return a response that its caller drives and gives to `end`. Raises what `Engine.open`
        raises."""
        run = ResponseRun(self._engine, draft)
        await run.open()
        if draft.is_stored:
            self._running[draft.response_id] = _Running(run)
        return run

    def end(self, run: ResponseRun) -> None:
        """Take a response that is over; one that is not is cancelled. Again is allowed."""
        run.cancel()
        run.close()
        self._settle(run, None)

    def start(self, draft: ResponseDraft) -> BackgroundRun:
        """Return a response that runs on its own."""
        run = ResponseRun(self._engine, draft)
        background = BackgroundRun(run, self._on_end, self._hold)
        self._running[draft.response_id] = _Running(run, background)
        return background

    def forget(self, response_id: str) -> None:
        """Drop a response of which its client was told nothing."""
        self._running.pop(response_id, None)
        self._store.drop(response_id)

    def close(self) -> None:
        """Cancel what still runs."""
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
        """Forget a response. One that has a client goes on for it; a background one ends."""
        found = self._find(response_id, tenant)
        self.forget(response_id)
        if isinstance(found, _Running) and found.background is not None:
            found.background.cancel()

    async def input_items(self, response_id: str, tenant: str | None) -> list[Item]:
        """Return the whole conversation before the answer, oldest first."""
        found = self._find(response_id, tenant)
        if isinstance(found, _Running):
            return list(found.run.draft.input_items)
        return list(_json(found.input_items))

    async def conversation(self, response_id: str, tenant: str | None) -> list[Item]:
        """Return what a next response builds on; see ResponseDirectory."""
        found = self._find(response_id, tenant)
        # One that is over may not be put away yet, but its client knows already.
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
            log = ResponseEventLog()
            log.append(found.events)
            log.end()
            return log.follow(first)
        if isinstance(found, _Running) and found.background and found.run.draft.has_replay:
            return found.background.log.follow(first)
        raise InvalidRequestError(
            "the events of this response are not kept: it was not made with background and stream "
            "true",
            field="stream",
        )

    def _find(self, response_id: str, tenant: str | None) -> _Running | StoredResponse:
        running = self._running.get(response_id)
        if running is not None and running.run.draft.tenant == tenant:
            return running
        stored = self._store.get(response_id, time.monotonic())
        # What is another's is told from nothing by nobody.
        if running is not None or stored is None or stored.tenant != tenant:
            raise not_found(response_id)
        return stored

    def _hold(self, num_bytes: int) -> bool:
        return self._store.hold(num_bytes, time.monotonic())

    def _on_end(self, background: BackgroundRun) -> None:
        has_replay = background.run.draft.has_replay
        self._settle(background.run, tuple(background.log.frames) if has_replay else None)

    def _settle(self, run: ResponseRun, events: tuple[bytes, ...] | None) -> None:
        """Keep a response that is over, unless it was deleted meanwhile."""
        response_id = run.draft.response_id
        if self._running.pop(response_id, None) is None:
            return
        stored = StoredResponse(
            tenant=run.draft.tenant,
            is_background=run.draft.is_background,
            body=orjson.dumps(run.body()),
            input_items=orjson.dumps(list(run.draft.input_items)),
            events=events,
        )
        self._store.put(response_id, stored, time.monotonic())


def _json(text: bytes) -> Any:
    return orjson.loads(text)
