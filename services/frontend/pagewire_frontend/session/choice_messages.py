"""The messages of the choices of one stream, taken apart as their text comes. Pure; knows neither
HTTP nor generated messages."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from pagewire_frontend.message.pieces import MessagePieces, MessageReader
from pagewire_frontend.session.events import Delta, Event, Finished, FinishReason


@dataclass(frozen=True, slots=True)
class MessageDelta:
    """New tokens of one choice and what their text turned out to be, which is not `delta.text`."""

    delta: Delta
    pieces: MessagePieces


@dataclass(frozen=True, slots=True)
class MessageFinished:
    """The end of one choice; `finished.text` is the rest of its content."""

    finished: Finished
    has_called: bool


class ChoiceMessages:
    """Makes one reader per choice."""

    def __init__(self, new_reader: Callable[[], MessageReader]) -> None:
        self._new_reader = new_reader
        self._readers: dict[int, MessageReader] = {}
        self._next_positions: dict[int, int] = {}

    def take(self, event: Event) -> Iterator[Event | MessageDelta | MessageFinished]:
        """Yield what an event shows; what is not of a choice as it is."""
        if isinstance(event, Delta):
            self._next_positions[event.choice] = event.first_position + len(event.token_ids)
            yield MessageDelta(event, self._reader(event.choice).push(event.text))
        elif isinstance(event, Finished):
            yield from self._finish(event)
        else:
            yield event

    def _finish(self, event: Finished) -> Iterator[MessageDelta | MessageFinished]:
        reader = self._reader(event.choice)
        pushed, held = reader.push(event.text), reader.finish()
        rest = MessagePieces(
            reasoning=pushed.reasoning + held.reasoning, calls=pushed.calls + held.calls
        )
        if rest:
            # A last delta without tokens: what ends a choice carries content alone.
            position = self._next_positions.get(event.choice, 0)
            yield MessageDelta(Delta(event.choice, position), rest)
        finished = replace(event, text=pushed.content + held.content)
        has_called = reader.num_calls > 0 and event.reason is FinishReason.STOP
        yield MessageFinished(finished, has_called)

    def _reader(self, choice: int) -> MessageReader:
        if choice not in self._readers:
            self._readers[choice] = self._new_reader()
        return self._readers[choice]
