"""Reads requests of the OpenAI endpoints again, whose frontend is gone, and makes their answers."""

from collections.abc import AsyncIterator, Sequence

from pagewire_frontend.engine.engine import Engine
from pagewire_frontend.http.kept_streams.framing import SSE_FRAMING
from pagewire_frontend.http.kept_streams.making import Making
from pagewire_frontend.http.kept_streams.pulled import PulledSource
from pagewire_frontend.http.kept_streams.recipe_keeper import RecipeKeeper
from pagewire_frontend.http.kept_streams.recipes import Recipe
from pagewire_frontend.http.openai.answer import Answer
from pagewire_frontend.http.openai.bodies import Bodies
from pagewire_frontend.http.openai.delivery import Opening
from pagewire_frontend.http.openai.generation import opening_again
from pagewire_frontend.http.openai.kept_answers.kept_events import stream_events, whole_events
from pagewire_frontend.session.session import Session


class BodyRemaker:
    """The Remaker of CHAT_PATH and COMPLETION_PATH."""

    framing = SSE_FRAMING

    def __init__(self, engine: Engine, bodies: Bodies) -> None:
        self._engine = engine
        self._bodies = bodies

    async def read(self, recipe: Recipe, making: Making) -> "BodyRemaking":
        """Return the request of a recipe. Raises PagewireError."""
        opening, is_streamed = await opening_again(
            self._engine, self._bodies, recipe.path, recipe.body, making
        )
        return BodyRemaking(opening, is_streamed=is_streamed)


class BodyRemaking:
    """One request whose body was read again."""

    def __init__(self, opening: Opening, *, is_streamed: bool) -> None:
        self._opening = opening
        self._make = stream_events if is_streamed else whole_events
        self._answer: Answer | None = None

    def numerics(self) -> bytes:
        """Return a digest of what decides the bits of its tokens; see Engine.numerics."""
        return self._opening.numerics()

    async def open(self) -> Sequence[Session]:
        """Open the answer; return its sessions."""
        self._answer = await self._opening.open()
        return self._answer.sessions

    def events(self, keeper: RecipeKeeper | None) -> AsyncIterator[bytes | PulledSource]:
        """Yield the events of the open answer."""
        assert self._answer is not None, "open comes first"
        return self._make(self._answer, self._opening, keeper)

    def close(self) -> None:
        """Free the answer."""
        if self._answer is not None:
            self._answer.close()
