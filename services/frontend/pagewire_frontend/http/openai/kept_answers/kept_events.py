"""Makes the events of answers that are kept: those of a stream, or one with the whole answer."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import orjson

from pagewire_frontend.http.kept_streams.recipe_keeper import RecipeKeeper
from pagewire_frontend.http.openai.answer import Answer
from pagewire_frontend.http.openai.chunk_source import ChunkSource, chunks
from pagewire_frontend.http.openai.delivery import Opening, shaped
from pagewire_frontend.http.streaming.event_stream import DONE, event_bytes

NewKeeper = Callable[[str], RecipeKeeper | None]
"""Makes the keeper of the recipe of a stream; None for a stream without a recipe."""


class KeptSource:
    """The EventSource of an answer that is opened when its events are asked for."""

    def __init__(self, opening: Opening, *, is_streamed: bool, new_keeper: NewKeeper) -> None:
        self._opening = opening
        self._is_streamed = is_streamed
        self._new_keeper = new_keeper
        self._answer: Answer | None = None

    async def events(self, stream_id: str) -> AsyncIterator[bytes]:
        """Yield the events; see EventSource."""
        self._answer = answer = await self._opening.open()
        keeper = self._new_keeper(stream_id)
        make = stream_events if self._is_streamed else whole_events
        async for ready in make(answer, self._opening, keeper):
            yield ready

    def close(self) -> None:
        """Free the answer."""
        if self._answer is not None:
            self._answer.close()


async def whole_events(
    answer: Answer, opening: Opening, keeper: RecipeKeeper | None
) -> AsyncIterator[bytes]:
    """Yield the event of a whole answer, and close it."""
    if keeper is not None:
        await answer.wait_first()
        await keeper.begun(answer.sessions, opening.numerics())
    choices = await answer.whole()
    answer.close()
    form = opening.form(answer)
    body = await shaped(opening.shown, form.whole, choices, answer.usage)
    if keeper is not None:
        await keeper.ended(orjson.dumps(body["usage"]))
    yield event_bytes(body)


async def stream_events(
    answer: Answer, opening: Opening, keeper: RecipeKeeper | None
) -> AsyncIterator[bytes]:
    """Yield the events of an answer as they are sent, those that are ready together."""
    if keeper is not None:
        await answer.wait_first()
        await keeper.begun(answer.sessions, opening.numerics())
    form, shown = opening.form(answer), opening.shown
    if shown.scores_prompt:
        body = _event_bytes(chunks(answer, form, shown))
    else:
        body = _source_bytes(ChunkSource(answer, form))
    async for ready in body:
        yield ready
    last = b""
    if shown.has_usage_chunk:
        chunk = form.usage_chunk(answer.usage)
        if keeper is not None:
            await keeper.ended(orjson.dumps(chunk["usage"]))
        last = event_bytes(chunk)
    yield last + DONE


async def _source_bytes(source: ChunkSource) -> AsyncIterator[bytes]:
    """Yield the events of a source, those that are ready together."""
    turn = asyncio.Event()
    source.listen(turn.set, lambda _: False)
    while not source.is_over:
        await turn.wait()
        turn.clear()
        yield source.take_chunks()


async def _event_bytes(parts: AsyncIterator[list[dict[str, Any]]]) -> AsyncIterator[bytes]:
    async for ready in parts:
        yield b"".join(map(event_bytes, ready))
