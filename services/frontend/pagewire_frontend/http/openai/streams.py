"""Makes the streaming response of an answer: written where its tokens arrive, or shaped in a thread
where shaping is long work. Owns the flush rounds that all streams share."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

from fastapi import Request, Response

from pagewire_frontend.http.openai.answer import Answer
from pagewire_frontend.http.openai.answer_head import AnswerFormat
from pagewire_frontend.http.openai.chunk_source import ChunkSource
from pagewire_frontend.http.openai.response_options import ResponseOptions
from pagewire_frontend.http.streaming.event_stream import EventStream
from pagewire_frontend.http.streaming.flush_rounds import FlushRounds
from pagewire_frontend.http.streaming.live_stream import LiveStream

Shape = TypeVar("Shape")


class Streams:
    """Makes streaming responses; one per process."""

    def __init__(self) -> None:
        self._rounds = FlushRounds()

    def of_answer(
        self, request: Request, answer: Answer, form: AnswerFormat, shown: ResponseOptions
    ) -> Response:
        """Return the response that streams an answer, and closes it."""
        if shown.scores_prompt:
            return EventStream(request, _chunks(answer, form, shown), answer.close)
        source = ChunkSource(answer, form, has_usage_chunk=shown.has_usage_chunk)
        return LiveStream(request, source, answer.close, self._rounds)


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


async def shaped(shown: ResponseOptions, shape: Callable[..., Shape], *parts: Any) -> Shape:
    """Return `shape(*parts)`; long work runs in a thread beside the event loop."""
    if shown.scores_prompt:
        return await asyncio.to_thread(shape, *parts)
    return shape(*parts)
