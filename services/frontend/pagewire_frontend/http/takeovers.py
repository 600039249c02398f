"""Makes the streams of lost frontends again from their recipes: from the tokens that a scheduler
still holds, else by computing them again where that gives the same bits."""

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

import orjson

from pagewire_frontend.access.api_keys import ApiKeys, set_caller
from pagewire_frontend.engine.engine import Engine
from pagewire_frontend.http.kept_streams.ids import StreamLostError
from pagewire_frontend.http.kept_streams.kept_stream import KeptStream
from pagewire_frontend.http.kept_streams.local_streams import LocalStreams
from pagewire_frontend.http.kept_streams.recipes import TAKEOVERS, Recipe, RecipeMirror
from pagewire_frontend.http.openai.answer import Answer
from pagewire_frontend.http.openai.answer_head import PinnedUsage
from pagewire_frontend.http.openai.bodies import Bodies
from pagewire_frontend.http.openai.delivery import Opening
from pagewire_frontend.http.openai.generation import opening_again
from pagewire_frontend.http.openai.kept_answers.kept_events import stream_events, whole_events
from pagewire_frontend.http.openai.kept_answers.making import Making
from pagewire_frontend.http.openai.kept_answers.recipe_keeper import (
    KeptRequest,
    RecipeKeeper,
    digest_of_answer,
)
from pagewire_shared.errors import InvalidRequestError

_logger = logging.getLogger(__name__)

ORPHAN_TRIES: Final = 6
ORPHAN_SECONDS: Final = 0.05
"""How often and after which time a scheduler is asked again that has not noticed the loss of a
frontend yet."""


@dataclass(frozen=True, slots=True)
class TakeoverTools:
    """What reads a request again and opens its answer.

    Attributes:
        mirror: Has the recipe kept by other frontends again.
    """

    engine: Engine
    bodies: Bodies
    keys: ApiKeys
    mirror: RecipeMirror


class Takeovers:
    """Makes streams again in this process."""

    def __init__(self, tools: TakeoverTools, local: LocalStreams) -> None:
        """Create it.

        Args:
            local: Keeps the streams.
        """
        self._tools = tools
        self._local = local

    def begin(self, recipe: Recipe) -> KeptStream:
        """Return the stream of a recipe, which begins anew under its id.

        Raises:
            OverloadedError: Kept streams have no room for it.
        """
        _logger.warning("the stream %s of a lost frontend goes on here", recipe.stream_id)
        remade = _Remade(self._tools, recipe)
        return self._local.keep(
            remade.events(),
            remade.close,
            recipe.tenant,
            has_early_error=False,
            stream_id=recipe.stream_id,
        )


class _Remade:
    """One answer that is made again. Raises StreamLostError where it might be another."""

    def __init__(self, tools: TakeoverTools, recipe: Recipe) -> None:
        self._tools = tools
        self._recipe = recipe
        self._answer: Answer | None = None

    async def events(self) -> AsyncIterator[bytes]:
        """Yield the events of the answer from its first on."""
        recipe = self._recipe
        # In the task of the stream: its requests count for the key.
        set_caller(self._tools.keys.caller_of(recipe.key_digest))
        opening, is_streamed, answer = await self._opened()
        keeper = RecipeKeeper(
            self._tools.mirror, KeptRequest(recipe.path, recipe.body, recipe.pins), recipe.stream_id
        )
        make = stream_events if is_streamed else whole_events
        async for ready in make(answer, opening, keeper):
            yield ready

    def close(self) -> None:
        """Free the answer."""
        if self._answer is not None:
            self._answer.close()

    async def _opened(self) -> tuple[Opening, bool, Answer]:
        """Return the answer with its first tokens."""
        for attempt in range(ORPHAN_TRIES):
            try:
                opened = await self._open(must_be_held=True)
            except InvalidRequestError as error:
                self.close()
                if error.field != "request_id":
                    break
                # Its scheduler still sees the frontend that is lost.
                await asyncio.sleep(ORPHAN_SECONDS * 2**attempt)
            else:
                TAKEOVERS.labels("held").inc()
                return opened
        opened = await self._open(must_be_held=False)
        TAKEOVERS.labels("computed").inc()
        return opened

    async def _open(self, *, must_be_held: bool) -> tuple[Opening, bool, Answer]:
        recipe = self._recipe
        making = Making(
            pins=recipe.pins,
            pinned_usage=_pinned_usage(recipe),
            must_be_held=must_be_held,
            has_new_ids=not must_be_held,
        )
        opening, is_streamed = await opening_again(
            self._tools.engine, self._tools.bodies, recipe.path, recipe.body, making
        )
        if not must_be_held and (not recipe.numerics or opening.numerics() != recipe.numerics):
            raise StreamLostError(
                "the frontend of this stream is gone, no scheduler has its tokens, and this "
                "backend may compute others: it is not exact, or not the same one"
            )
        self._answer = answer = await opening.open()
        if digest_of_answer(answer) != recipe.digest:
            raise StreamLostError(
                "the frontend of this stream is gone, and its prompt or model is another here"
            )
        # Of several prompts each may be refused.
        await asyncio.gather(*(session.wait_first() for session in answer.sessions))
        return opening, is_streamed, answer


def _pinned_usage(recipe: Recipe) -> PinnedUsage:
    body = orjson.loads(recipe.usage) if recipe.usage else None
    is_known = bool(recipe.cached_tokens) and min(recipe.cached_tokens) >= 0
    return PinnedUsage(sum(recipe.cached_tokens) if is_known else None, body)
