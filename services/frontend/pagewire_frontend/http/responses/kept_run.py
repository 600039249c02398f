"""Makes the events of a response that goes on without its client, also of one whose frontend is
gone."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from pagewire_frontend.chat.plan import MessagePlan
from pagewire_frontend.http.kept_streams.recipe_keeper import RecipeKeeper
from pagewire_frontend.http.responses.frames import RESPONSE_FRAMING, frames, whole_frame
from pagewire_frontend.http.responses.local import LocalResponses
from pagewire_frontend.http.responses.output import Event
from pagewire_frontend.http.responses.pending_response import PendingResponse
from pagewire_frontend.http.responses.run import ResponseRun
from pagewire_frontend.session.session import Session
from pagewire_shared.errors import PagewireError, UnavailableError
from pagewire_shared.exhaustion import ExhaustedError

ASKED_SECONDS: Final = 1.0
"""How long the creation of a background response waits until the engine accepts or refuses it.
Errors are so reported at once, and a model without a worker delays no client."""


class KeptRun:
    """The Remaking of a response, and its first making.

    Of a streamed response all events are typed. One that is not streamed has one event, which is
    what its client gets: the whole response, or of one in the background its beginning.
    """

    def __init__(self, responses: LocalResponses, pending: PendingResponse) -> None:
        """Create it; nothing is opened.

        Args:
            responses: Has it while it runs, and stores it.
        """
        self._responses = responses
        self._pending = pending
        self._run = ResponseRun(responses.engine, pending)
        self._opening: asyncio.Task[None] | None = None
        self._keeper: RecipeKeeper | None = None

    def numerics(self) -> bytes:
        """Return a digest of what decides the bits of its tokens; see Engine.numerics."""
        return self._run.numerics()

    async def open(self) -> Sequence[Session]:
        """Open the answer; return its session."""
        await self.begin_opening(None)
        return [self._run.session]

    async def begin_opening(self, seconds: float | None) -> None:
        """Open the answer; in the background it goes on after `seconds`. Raises PagewireError."""
        self._opening = opening = asyncio.create_task(self._run.open())
        await asyncio.wait([opening], timeout=seconds)
        if opening.done():
            opening.result()

    async def events(self, keeper: RecipeKeeper | None) -> AsyncIterator[bytes]:
        """Yield whole events as they are sent, several together. Errors of a response that has
        begun are events, unless it moves to another frontend."""
        run, pending = self._run, self._pending
        self._keeper, run.moves = keeper, self._moves
        self._responses.begin(run)
        begun: list[Event] = []
        if pending.is_background:
            async for ready in self._announced():
                yield ready
            begun = await self._first_or_failure()
        else:
            await self._ready()
            if pending.has_replay:
                begun = run.created()
        if begun:
            yield b"".join(frames(begun))
        if not run.is_over:
            async for events in run.events(keeper):
                if pending.has_replay:
                    yield b"".join(frames(events))
        if run.error is not None:
            if not pending.has_replay and not pending.is_background:
                raise run.error
            self._responses.note_failure(run)
        elif not pending.has_replay and not pending.is_background:
            yield whole_frame(run.body())

    async def _announced(self) -> AsyncIterator[bytes]:
        """Yield what is shown of a background response before it has a token."""
        if self._opening is not None and self._opening.done():
            # The client is to get no id that is lost with this process.
            await self._keep()
        pending = self._pending
        if pending.has_replay:
            yield b"".join(frames(self._run.created()))
        else:
            yield whole_frame(self._run.body())

    async def _first_or_failure(self) -> list[Event]:
        """Wait for the first token; return the events of a failure before it."""
        try:
            await self._ready()
        except PagewireError as error:
            if self._moves(error):
                raise
            failed = self._run.fail(error)
            return failed if self._pending.has_replay else []
        return []

    async def _ready(self) -> None:
        """Return when the first token is there and the recipe is kept with what it tells."""
        assert self._opening is not None, "open comes first"
        await self._opening
        await self._run.wait_first()
        await self._keep()

    async def _keep(self) -> None:
        if self._keeper is not None:
            await self._keeper.begun([self._run.session], self.numerics())

    def _moves(self, error: PagewireError) -> bool:
        """Return whether others make it again that has met `error` here."""
        is_leaving = self._responses.is_ending or isinstance(error, ExhaustedError)
        return self._keeper is not None and isinstance(error, UnavailableError) and is_leaving

    def close(self) -> None:
        """Free what it holds, and store it if it is over."""
        if self._opening is not None:
            self._opening.cancel()
        self._responses.ended(self._run)


@dataclass(frozen=True, slots=True)
class Built:
    """A response that is not open yet.

    Attributes:
        plan: Names the fields of its errors.
        keeper: Has its recipe kept; None without one.
    """

    pending: PendingResponse
    plan: MessagePlan
    keeper: RecipeKeeper | None


class ResponseSource:
    """The EventSource of a response that is built when its events are asked for."""

    framing = RESPONSE_FRAMING

    def __init__(self, responses: LocalResponses, build: Callable[[str], Awaitable[Built]]) -> None:
        """Create it.

        Args:
            build: Returns the response of an id.
        """
        self._responses = responses
        self._build = build
        self._kept: KeptRun | None = None

    async def events(self, stream_id: str) -> AsyncIterator[bytes]:
        """Yield the events; see EventSource."""
        built = await self._build(stream_id)
        self._kept = kept = KeptRun(self._responses, built.pending)
        try:
            await kept.begin_opening(ASKED_SECONDS if built.pending.is_background else None)
            async for ready in kept.events(built.keeper):
                yield ready
        except PagewireError as error:
            raise built.plan.named(error) from error.__cause__

    def close(self) -> None:
        """Free what the response holds."""
        if self._kept is not None:
            self._kept.close()
