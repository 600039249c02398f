"""Makes the messages of calls whose answer goes on without them, also of those whose frontend is
gone."""

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace

from pagewire_frontend.engine.engine import Engine
from pagewire_frontend.grpc_api.answers import open_session, shown_events
from pagewire_frontend.grpc_api.call_convert import ReadCall, read_again
from pagewire_frontend.grpc_api.kept_convert import CALL_FRAMING, pin
from pagewire_frontend.http.kept_streams.making import Making
from pagewire_frontend.http.kept_streams.recipe_keeper import RecipeKeeper
from pagewire_frontend.http.kept_streams.recipes import Recipe
from pagewire_frontend.session.events import Closed, Opened
from pagewire_frontend.session.reader_turns import ReaderTurns
from pagewire_frontend.session.session import Session

NewKeeper = Callable[[str], RecipeKeeper | None]
"""Makes the keeper of the recipe of a stream; None for a stream without a recipe."""


class CallAnswer:
    """The Remaking of a call, and its first making."""

    def __init__(
        self, engine: Engine, call: ReadCall, turns: ReaderTurns, making: Making | None
    ) -> None:
        """Create it; nothing is opened.

        Args:
            making: How it is made; None where no other frontend could make it again.
        """
        asked = call.asked
        if making is not None:
            asked = replace(asked, request=making.applied(asked.request, 0))
        self._engine = engine
        self._asked = asked
        self._shown = call.shown
        self._turns = turns
        self._making = making
        self._session: Session | None = None

    def numerics(self) -> bytes:
        """Return a digest of what decides the bits of its tokens; see Engine.numerics."""
        return self._engine.numerics(self._asked.request.model)

    async def open(self) -> Sequence[Session]:
        """Open the answer; return its session."""
        self._session = await open_session(self._engine, self._asked)
        return [self._session]

    async def events(
        self, keeper: RecipeKeeper | None, *, has_late_opening: bool = False
    ) -> AsyncIterator[bytes]:
        """Yield one serialized message at a time.

        Args:
            has_late_opening: The first message comes with the second: until a token is there, the
                request may still be refused.
        """
        assert self._session is not None, "open comes first"
        if keeper is not None:
            await self._session.wait_first()
            await keeper.begun([self._session], self.numerics())
        held: list[bytes] = []
        async for event, echo in shown_events(self._session, self._asked, self._turns):
            shown = list(self._shown(event, echo))
            if self._making is not None:
                for message in shown:
                    pin(message, self._making)
            if keeper is not None and isinstance(event, Closed):
                await keeper.ended(shown[-1].closed.SerializeToString())
            ready = [*held, *(message.SerializeToString() for message in shown)]
            held = ready if has_late_opening and isinstance(event, Opened) else []
            for one in () if held else ready:
                yield one

    def close(self) -> None:
        """Free what the answer holds."""
        if self._session is not None:
            self._engine.close(self._session)


class CallSource:
    """The EventSource of an answer that is opened when its messages are asked for."""

    framing = CALL_FRAMING

    def __init__(
        self, answer: CallAnswer, new_keeper: NewKeeper, *, has_late_opening: bool
    ) -> None:
        self._answer = answer
        self._new_keeper = new_keeper
        self._has_late_opening = has_late_opening

    async def events(self, stream_id: str) -> AsyncIterator[bytes]:
        """Yield one serialized message at a time."""
        await self._answer.open()
        messages = self._answer.events(
            self._new_keeper(stream_id), has_late_opening=self._has_late_opening
        )
        async for message in messages:
            yield message

    def close(self) -> None:
        """Free what the answer holds."""
        self._answer.close()


class CallRemaker:
    """The Remaker of CALL_PATHS."""

    framing = CALL_FRAMING

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._turns = ReaderTurns()

    async def read(self, recipe: Recipe, making: Making) -> CallAnswer:
        """Return the request of a recipe. Raises PagewireError."""
        call = await read_again(self._engine, recipe.path, recipe.body)
        return CallAnswer(self._engine, call, self._turns, making)
