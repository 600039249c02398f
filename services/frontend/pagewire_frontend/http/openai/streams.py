"""Makes the streaming response of an answer: written where its tokens arrive, or shaped in a thread
where shaping is long work. Owns the flush rounds that all streams share."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

from fastapi import Request, Response

from pagewire_frontend.access.api_keys import current_tenant
from pagewire_frontend.http.kept_streams.endpoints import stream_response
from pagewire_frontend.http.kept_streams.keyed_streams import (
    KeyedStreams,
    RequestKey,
    data_of,
)
from pagewire_frontend.http.kept_streams.local_streams import LocalStreams
from pagewire_frontend.http.openai.answer import Answer
from pagewire_frontend.http.openai.answer_head import AnswerFormat
from pagewire_frontend.http.openai.delivery import Opening, closed_on_failure, shaped
from pagewire_frontend.http.openai.response_options import ResponseOptions
from pagewire_frontend.http.server.connection import while_connected
from pagewire_frontend.http.server.request_id import REPLAYED
from pagewire_frontend.http.streaming.event_stream import DONE, EventStream, TextLine, event_bytes
from pagewire_frontend.http.streaming.flush_rounds import FlushRounds
from pagewire_frontend.http.streaming.live_stream import LiveStream
from pagewire_frontend.session.events import Delta, Finished, OnText


class ChunkSource:
    """The source of a LiveStream: ready events of an answer, in an endpoint's shapes."""

    def __init__(self, answer: Answer, form: AnswerFormat, *, has_usage_chunk: bool) -> None:
        self._answer = answer
        self._form = form
        self._has_usage_chunk = has_usage_chunk
        self._is_open = False
        self.text_line: TextLine | None = None
        """Makes an event of offered text; None until the opening was taken."""

    @property
    def is_over(self) -> bool:
        """Whether the last event was taken."""
        return self._answer.is_over

    def listen(self, on_ready: Callable[[], None], on_text: OnText) -> None:
        """Call `on_ready` whenever there are events to take; `on_text` is offered the text of an
        answer that has one choice."""
        self._answer.listen(on_ready, on_text)

    def take(self) -> bytes:
        """Return the events that are ready. Raises PagewireError when the answer failed."""
        lines = []
        for number, event in self._answer.take():
            if not self._is_open:
                # Not before: only now all facts about the prompt are known.
                lines += [event_bytes(it) for it in self._form.opening(self._answer.num_choices)]
                self._is_open = True
                self.text_line = self._form.text_line(0)
            lines.append(self._line(number, event))
        if self._answer.is_over:
            if self._has_usage_chunk:
                lines.append(event_bytes(self._form.usage_chunk(self._answer.usage)))
            lines.append(DONE)
        return b"".join(lines)

    def _line(self, number: int, event: Delta | Finished) -> bytes:
        """Return the chunk of an event as it is streamed, empty when it has nothing to show."""
        if isinstance(event, Delta):
            text_line = self._form.text_line(number)
            if text_line is not None:
                return text_line(event.text)
        chunk = self._form.chunk(number, event)
        return b"" if chunk is None else event_bytes(chunk)


class Streams:
    """Makes streaming responses; one per process."""

    def __init__(self, kept: LocalStreams, keyed: KeyedStreams) -> None:
        """Create it.

        Args:
            kept: Keeps streams that go on without their client.
            keyed: Finds those of idempotency keys.
        """
        self._keyed = keyed
        self._rounds = FlushRounds()
        self._kept = kept

    @property
    def keeps_any(self) -> bool:
        """Whether streams can go on without their client."""
        return self._kept.keeps_any

    async def deliver(self, request: Request, opening: Opening) -> Response:
        """Return the response that streams an answer, and closes it."""
        answer = await while_connected(request, _begun(opening))
        with closed_on_failure(answer):
            form, shown = opening.form(answer), opening.shown
            if shown.scores_prompt:
                return EventStream(request, _chunks(answer, form, shown), answer.close)
            source = ChunkSource(answer, form, has_usage_chunk=shown.has_usage_chunk)
            return LiveStream(request, source, answer.close, self._rounds)

    async def deliver_kept(self, request: Request, opening: Opening) -> Response:
        """Return the response that streams an answer which goes on without it."""
        answer = await while_connected(request, _begun(opening))
        with closed_on_failure(answer):
            events = _events(answer, opening)
            stream = self._kept.keep(events, answer.close, current_tenant())
        return stream_response(request, self._kept.reading(stream, 0), stream.stream_id)

    async def deliver_keyed(
        self, key: RequestKey, is_streamed: bool, request: Request, opening: Opening
    ) -> Response:
        """Return the response with the answer of an idempotency key, which goes on without it."""
        source = OpeningSource(opening, is_streamed=is_streamed)
        found = await while_connected(request, self._keyed.read(key, source))
        if is_streamed:
            response = stream_response(request, found.reading, found.stream_id)
        else:
            data = await while_connected(request, data_of(found.reading))
            response = Response(data, media_type="application/json")
        if found.is_joined:
            response.raw_headers.append((REPLAYED.encode(), b"true"))
        return response


class OpeningSource:
    """The EventSource of an answer that is opened when its events are asked for: those of its
    stream, or one with the whole answer."""

    def __init__(self, opening: Opening, *, is_streamed: bool) -> None:
        self._opening = opening
        self._is_streamed = is_streamed
        self._answer: Answer | None = None

    async def events(self) -> AsyncIterator[bytes]:
        """Yield the events; see EventSource."""
        opening = self._opening
        self._answer = answer = await opening.open()
        if self._is_streamed:
            async for ready in _events(answer, opening):
                yield ready
        else:
            choices = await answer.whole()
            answer.close()
            form, shown = opening.form(answer), opening.shown
            yield event_bytes(await shaped(shown, form.whole, choices, answer.usage))

    def close(self) -> None:
        """Free the answer."""
        if self._answer is not None:
            self._answer.close()


async def _begun(opening: Opening) -> Answer:
    """Return an open answer with its first token: an error before that is a plain status."""
    answer = await opening.open()
    with closed_on_failure(answer):
        await answer.wait_first()
    return answer


def _events(answer: Answer, opening: Opening) -> AsyncIterator[bytes]:
    """Return the events of an answer as they are sent, those that are ready together."""
    form, shown = opening.form(answer), opening.shown
    if shown.scores_prompt:
        return _event_bytes(_chunks(answer, form, shown))
    return _source_bytes(ChunkSource(answer, form, has_usage_chunk=shown.has_usage_chunk))


async def _source_bytes(source: ChunkSource) -> AsyncIterator[bytes]:
    """Yield the events of a source, those that are ready together."""
    turn = asyncio.Event()
    source.listen(turn.set, lambda _: False)
    while not source.is_over:
        await turn.wait()
        turn.clear()
        yield source.take()


async def _event_bytes(chunks: AsyncIterator[list[dict[str, Any]]]) -> AsyncIterator[bytes]:
    async for ready in chunks:
        yield b"".join(map(event_bytes, ready))
    yield DONE


async def _chunks(
    answer: Answer, form: AnswerFormat, shown: ResponseOptions
) -> AsyncIterator[list[dict[str, Any]]]:
    is_open = False
    async for number, event in answer.events():
        if not is_open:
            # Not before: only now all facts about the prompt are known.
            yield await shaped(shown, form.opening, answer.num_choices)
            is_open = True
        chunk = await shaped(shown, form.chunk, number, event)
        if chunk is not None:
            yield [chunk]
    if shown.has_usage_chunk:
        yield [form.usage_chunk(answer.usage)]
