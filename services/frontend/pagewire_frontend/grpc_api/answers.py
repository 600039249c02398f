"""The events of streamed calls as they are shown."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from typing import Any, Final

from pagewire_frontend.engine.engine import Engine
from pagewire_frontend.grpc_api.convert import GrpcStreamOptions
from pagewire_frontend.prompts.generation_request import echo_text, without_output
from pagewire_frontend.session.choice_order import ChoiceOrder
from pagewire_frontend.session.events import Delta, Event, Finished
from pagewire_frontend.session.reader_turns import ReaderTurns
from pagewire_frontend.session.session import Session
from pagewire_shared.errors import PagewireError

MAX_TOKENS: Final = 65_536
MAX_LOGPROBS: Final = 4_096
"""Limits of a merged delta; a full delta is given before the choice ends."""

Shown = Callable[[Event, str | None], Iterable[Any]]
"""Makes the messages of an event; the first one has the text before the answer, if it is wanted."""


async def open_session(engine: Engine, asked: GrpcStreamOptions) -> Session:
    """Return an open session. Raises the error that refuses the request, by its names of fields."""
    try:
        return await engine.open(asked.request)
    except PagewireError as error:
        raise asked.as_given(error) from error.__cause__


async def shown_events(
    session: Session, asked: GrpcStreamOptions, turns: ReaderTurns
) -> AsyncGenerator[tuple[Event, str | None]]:
    """Yield the events to show; the first with the text before the answer if it is wanted."""
    opened = session.opened()
    prompt = opened.prompt_token_ids
    yield opened, echo_text(asked.request, prompt) if asked.has_echo else None
    final = FinalDeltas() if asked.is_final_only else None
    events = session.events(turns)
    if asked.request.is_split and session.num_choices > 1:
        events = _in_order(events, ChoiceOrder(session.num_choices))
    async for event in events:
        for ready in (event,) if final is None else final.take(event):
            shown = ready if asked.has_output else without_output(ready)
            if shown is not None:
                yield shown, None


async def _in_order(events: AsyncIterator[Event], order: ChoiceOrder) -> AsyncIterator[Event]:
    """Yield the events of all choices in an order that does not depend on when they came."""
    async for event in events:
        if isinstance(event, Delta | Finished):
            for _, ready in order.take([(event.choice, event)]):
                yield ready
        else:
            yield event


class FinalDeltas:
    """Holds back the deltas of one stream."""

    def __init__(self) -> None:
        self._held: dict[int, Delta] = {}

    def take(self, event: Event) -> list[Event]:
        """Return the events to show now that `event` has come, in order."""
        if isinstance(event, Delta):
            return self._hold(event)
        if isinstance(event, Finished):
            held = self._held.pop(event.choice, None)
            return [event] if held is None else [held, event]
        return [event]

    def _hold(self, delta: Delta) -> list[Event]:
        held = self._held.get(delta.choice)
        if held is None:
            self._held[delta.choice] = delta
            return []
        if (
            len(held.token_ids) + len(delta.token_ids) > MAX_TOKENS
            or len(held.logprobs) + len(delta.logprobs) > MAX_LOGPROBS
        ):
            self._held[delta.choice] = delta
            return [held]
        held.token_ids.extend(delta.token_ids)
        held.logprobs.extend(delta.logprobs)
        held.text += delta.text
        return []
