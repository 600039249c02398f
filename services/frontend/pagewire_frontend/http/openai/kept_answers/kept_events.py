"""Makes the events of answers that are kept: those of a stream, or one with the whole answer."""

from collections.abc import AsyncIterator, Callable

import orjson

from pagewire_frontend.http.kept_streams.framing import SSE_FRAMING
from pagewire_frontend.http.kept_streams.pulled import PulledSource
from pagewire_frontend.http.kept_streams.recipe_keeper import RecipeKeeper
from pagewire_frontend.http.openai.answer import Answer
from pagewire_frontend.http.openai.chunk_source import ChunkSource, chunks
from pagewire_frontend.http.openai.delivery import Opening, shaped
from pagewire_frontend.http.streaming.event_stream import DONE, event_bytes

NewKeeper = Callable[[str], RecipeKeeper | None]
"""Makes the keeper of the recipe of a stream; None for a stream without a recipe."""


class KeptSource:
    """The EventSource of an answer that is opened when its events are asked for."""

    framing = SSE_FRAMING

    def __init__(self, opening: Opening, *, is_streamed: bool, new_keeper: NewKeeper) -> None:
        self._opening = opening
        self._is_streamed = is_streamed
        self._new_keeper = new_keeper
        self._answer: Answer | None = None

    async def events(self, stream_id: str) -> AsyncIterator[bytes | PulledSource]:
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
) -> AsyncIterator[bytes | PulledSource]:
    """Yield the events of an answer as they are sent, or what they are pulled from."""
    if keeper is not None:
        await answer.wait_first()
        await keeper.begun(answer.sessions, opening.numerics())
    form, shown = opening.form(answer), opening.shown
    if shown.scores_prompt:
        async for ready in chunks(answer, form, shown):
            yield b"".join(map(event_bytes, ready))
    else:
        yield ChunkSource(answer, form)
    last = b""
    if shown.has_usage_chunk:
        chunk = form.usage_chunk(answer.usage)
        if keeper is not None:
            await keeper.ended(orjson.dumps(chunk["usage"]))
        last = event_bytes(chunk)
    yield last + DONE
