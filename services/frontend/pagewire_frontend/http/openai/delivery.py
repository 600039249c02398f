"""Delivers an answer as a response: the interface, and the response of a whole answer."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from fastapi import Request, Response

from pagewire_frontend.http.openai.answer import Answer, WholeChoice
from pagewire_frontend.http.openai.answer_head import AnswerFormat
from pagewire_frontend.http.openai.response_options import ResponseOptions
from pagewire_frontend.http.server.connection import while_connected
from pagewire_frontend.http.server.errors import json_response

Shape = TypeVar("Shape")


@dataclass(frozen=True, slots=True)
class Opening:
    """A checked request whose answer is not open yet.

    Attributes:
        open: Opens the answer, which is to be closed.
        form: Returns the shapes of an open answer.
        numerics: Returns a digest of what decides the bits of its tokens; see Engine.numerics.
    """

    open: Callable[[], Coroutine[Any, Any, Answer]]
    form: Callable[[Answer], AnswerFormat]
    shown: ResponseOptions
    numerics: Callable[[], bytes]


Delivery = Callable[[Request, Opening], Awaitable[Response]]


async def deliver_whole(request: Request, opening: Opening) -> Response:
    """Return the response with a whole answer."""
    answer, choices = await while_connected(request, _ended(opening))
    form = opening.form(answer)
    return json_response(await shaped(opening.shown, form.whole, choices, answer.usage))


async def _ended(opening: Opening) -> tuple[Answer, list[WholeChoice]]:
    """Return a closed answer and all of its choices."""
    answer = await opening.open()
    try:
        return answer, await answer.whole()
    finally:
        answer.close()


@contextmanager
def closed_on_failure(answer: Answer) -> Iterator[None]:
    """Close the answer when the body of the block fails."""
    try:
        yield
    except BaseException:
        answer.close()
        raise


async def shaped(shown: ResponseOptions, shape: Callable[..., Shape], *parts: Any) -> Shape:
    """Return `shape(*parts)`; long work runs in a thread beside the event loop."""
    if shown.scores_prompt:
        return await asyncio.to_thread(shape, *parts)
    return shape(*parts)
