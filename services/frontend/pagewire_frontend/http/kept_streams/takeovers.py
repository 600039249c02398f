"""Makes the streams of lost frontends again from their recipes: from the tokens that a scheduler
still holds, else by computing them again where that gives the same bits."""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from pagewire_frontend.access.api_keys import ApiKeys, set_caller
from pagewire_frontend.http.kept_streams.framing import Framing
from pagewire_frontend.http.kept_streams.ids import StreamLostError
from pagewire_frontend.http.kept_streams.kept_stream import KeptStream
from pagewire_frontend.http.kept_streams.local_streams import LocalStreams
from pagewire_frontend.http.kept_streams.making import Making, making_again
from pagewire_frontend.http.kept_streams.pulled import PulledSource
from pagewire_frontend.http.kept_streams.recipe_keeper import (
    KeptRequest,
    RecipeKeeper,
    digest_of_sessions,
)
from pagewire_frontend.http.kept_streams.recipes import (
    TAKEOVERS,
    Recipe,
    RecipeMirror,
    unpacked_aside,
)
from pagewire_frontend.session.session import Session
from pagewire_shared.errors import InvalidRequestError

_logger = logging.getLogger(__name__)

ORPHAN_TRIES: Final = 6
ORPHAN_SECONDS: Final = 0.05
"""How often and after which time a scheduler is asked again that has not noticed the loss of a
frontend yet."""


class Remaking(Protocol):
    """A request that was read again, and its answer."""

    def numerics(self) -> bytes:
        """Return a digest of what decides the bits of its tokens; see Engine.numerics."""
        ...

    async def open(self) -> Sequence[Session]:
        """Open the answer; return its sessions, one per prompt. Raises PagewireError."""
        ...

    def events(self, keeper: RecipeKeeper | None) -> AsyncIterator[bytes | PulledSource]:
        """Yield the events of the open answer from its first on; `keeper` keeps its recipe."""
        ...

    def close(self) -> None:
        """Free the answer, if it is open; again is allowed."""
        ...


class Remaker(Protocol):
    """Reads requests of one API again."""

    @property
    def framing(self) -> Framing:
        """Form of the events of its streams."""
        ...

    async def read(self, recipe: Recipe, making: Making) -> Remaking:
        """Return the request of a recipe. Raises PagewireError."""
        ...


@dataclass(frozen=True, slots=True)
class TakeoverTools:
    """What every stream that is made again needs.

    Attributes:
        mirror: Has the recipe kept by other frontends again.
        remakers: By path of the recipe.
    """

    keys: ApiKeys
    mirror: RecipeMirror
    remakers: Mapping[str, Remaker]


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
            StreamLostError: It was made over an API that this frontend does not serve.
            OverloadedError: Kept streams have no room for it.
        """
        remaker = self._tools.remakers.get(recipe.path)
        if remaker is None:
            raise StreamLostError(
                "the frontend of this stream is gone, and this one does not serve its API"
            )
        _logger.warning("the stream %s of a lost frontend goes on here", recipe.stream_id)
        remade = _Remade(self._tools, remaker, recipe)
        return self._local.keep(
            remade.events(),
            remade.close,
            recipe.tenant,
            has_early_error=False,
            framing=remaker.framing,
            stream_id=recipe.stream_id,
        )


class _Remade:
    """One answer that is made again. Raises StreamLostError where it might be another."""

    def __init__(self, tools: TakeoverTools, remaker: Remaker, recipe: Recipe) -> None:
        self._tools = tools
        self._remaker = remaker
        self._recipe = recipe
        self._remaking: Remaking | None = None

    async def events(self) -> AsyncIterator[bytes | PulledSource]:
        """Yield the events of the answer from its first on."""
        self._recipe = recipe = await unpacked_aside(self._recipe)
        # In the task of the stream: its requests count for the key.
        set_caller(self._tools.keys.caller_of(recipe.key_digest))
        remaking = await self._opened()
        asked = KeptRequest(recipe.path, recipe.body, recipe.pins)
        keeper = RecipeKeeper(self._tools.mirror, asked, recipe.stream_id)
        async for ready in remaking.events(keeper):
            yield ready

    def close(self) -> None:
        """Free the answer."""
        if self._remaking is not None:
            self._remaking.close()

    async def _opened(self) -> Remaking:
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

    async def _open(self, *, must_be_held: bool) -> Remaking:
        recipe = self._recipe
        making = making_again(recipe, must_be_held=must_be_held)
        remaking = await self._remaker.read(recipe, making)
        if not must_be_held:
            self._check(remaking)
        self._remaking = remaking
        sessions = await remaking.open()
        if digest_of_sessions(sessions) != recipe.digest:
            raise StreamLostError(
                "the frontend of this stream is gone, and its prompt or model is another here"
            )
        # Of several prompts each may be refused.
        await asyncio.gather(*(session.wait_first() for session in sessions))
        if not must_be_held:
            self._check(remaking)  # the weights may have been exchanged before the first token
        return remaking

    def _check(self, remaking: Remaking) -> None:
        recipe = self._recipe
        if not recipe.numerics or remaking.numerics() != recipe.numerics:
            raise StreamLostError(
                "the frontend of this stream is gone, no scheduler has its tokens, and this "
                "backend may compute others: it is not exact, or not the same one"
            )
