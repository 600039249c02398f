"""Makes the streaming response of an answer: written where its tokens arrive, or shaped in a thread
where shaping is long work. Owns the flush rounds that all streams share."""

from collections.abc import AsyncIterator
from functools import partial
from typing import Any

from fastapi import Request, Response

from pagewire_frontend.access.api_keys import current_tenant
from pagewire_frontend.http.kept_streams.endpoints import stream_response
from pagewire_frontend.http.kept_streams.keyed_streams import (
    EventSource,
    KeyedReading,
    KeyedStreams,
    RequestKey,
    data_of,
)
from pagewire_frontend.http.kept_streams.local_streams import LocalStreams
from pagewire_frontend.http.kept_streams.making import Making
from pagewire_frontend.http.kept_streams.pins import draw_pins
from pagewire_frontend.http.kept_streams.recipe_keeper import KeptRequest, RecipeKeeper
from pagewire_frontend.http.kept_streams.recipes import RecipeMirror
from pagewire_frontend.http.openai.answer import Answer
from pagewire_frontend.http.openai.answer_head import AnswerFormat
from pagewire_frontend.http.openai.chunk_source import ChunkSource, chunks
from pagewire_frontend.http.openai.delivery import Opening, closed_on_failure
from pagewire_frontend.http.openai.kept_answers.kept_events import KeptSource, stream_events
from pagewire_frontend.http.openai.response_options import ResponseOptions
from pagewire_frontend.http.server.connection import while_connected
from pagewire_frontend.http.server.request_id import REPLAYED
from pagewire_frontend.http.streaming.event_stream import EventStream
from pagewire_frontend.http.streaming.flush_rounds import FlushRounds
from pagewire_frontend.http.streaming.live_stream import LiveStream


class Streams:
    """Makes streaming responses; one per process."""

    def __init__(self, kept: LocalStreams, keyed: KeyedStreams, mirror: RecipeMirror) -> None:
        """Create it.

        Args:
            kept: Keeps streams that go on without their client.
            keyed: Finds those of idempotency keys.
            mirror: Has their recipes kept by other frontends.
        """
        self._mirror = mirror
        self._keyed = keyed
        self.rounds = FlushRounds()
        self._kept = kept

    @property
    def keeps_any(self) -> bool:
        """Whether streams can go on without their client."""
        return self._kept.keeps_any

    def new_making(self) -> Making | None:
        """Return how a kept answer is made; None where no other frontend could make it again."""
        return Making(pins=draw_pins()) if self.is_mirrored else None

    @property
    def is_mirrored(self) -> bool:
        """Whether other frontends keep recipes of kept answers."""
        return self._mirror.is_on

    async def answer(self, key: RequestKey | None, source: EventSource) -> KeyedReading:
        """Return the answer that `source` makes, or that of its key, if it has one. Raises as
        KeyedStreams."""
        if key is None:
            return await self._keyed.make(source, current_tenant())
        return await self._keyed.read(key, source)

    async def deliver(self, request: Request, opening: Opening) -> Response:
        """Return the response that streams an answer, and closes it."""
        answer = await while_connected(request, _begun(opening))
        with closed_on_failure(answer):
            form, shown = opening.form(answer), opening.shown
            if shown.scores_prompt:
                return EventStream(request, _all_chunks(answer, form, shown), answer.close)
            source = ChunkSource(answer, form, has_usage_chunk=shown.has_usage_chunk)
            return LiveStream(request, source, answer.close, self.rounds)

    async def deliver_kept(
        self, asked: KeptRequest | None, request: Request, opening: Opening
    ) -> Response:
        """Return the response that streams an answer which goes on without it; `asked` is set for
        one whose recipe is kept."""
        answer = await while_connected(request, _begun(opening))
        with closed_on_failure(answer):
            stream_id = self._kept.mint()
            events = stream_events(answer, opening, self.keeper(asked, stream_id))
            stream = self._kept.keep(events, answer.close, current_tenant(), stream_id=stream_id)
        reading = self._kept.reading(stream, 0)
        return stream_response(request, reading, stream_id, self.rounds)

    async def deliver_keyed(
        self,
        key: RequestKey,
        asked: KeptRequest | None,
        is_streamed: bool,
        request: Request,
        opening: Opening,
    ) -> Response:
        """Return the response with the answer of an idempotency key, which goes on without it."""
        source = KeptSource(
            opening, is_streamed=is_streamed, new_keeper=partial(self.keeper, asked)
        )
        found = await while_connected(request, self.answer(key, source))
        if is_streamed:
            response = stream_response(request, found.reading, found.stream_id, self.rounds)
        else:
            data = await while_connected(request, data_of(found.reading))
            response = Response(data, media_type="application/json")
        if found.is_joined:
            response.raw_headers.append((REPLAYED.encode(), b"true"))
        return response

    def keeper(self, asked: KeptRequest | None, stream_id: str) -> RecipeKeeper | None:
        """Return what has the recipe of a stream kept; None for a request without one."""
        return None if asked is None else RecipeKeeper(self._mirror, asked, stream_id)


async def _begun(opening: Opening) -> Answer:
    """Return an open answer with its first token: an error before that is a plain status."""
    answer = await opening.open()
    with closed_on_failure(answer):
        await answer.wait_first()
    return answer


async def _all_chunks(
    answer: Answer, form: AnswerFormat, shown: ResponseOptions
) -> AsyncIterator[list[dict[str, Any]]]:
    async for ready in chunks(answer, form, shown):
        yield ready
    if shown.has_usage_chunk:
        yield [form.usage_chunk(answer.usage)]
