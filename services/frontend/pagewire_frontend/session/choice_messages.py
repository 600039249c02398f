"""Parses the messages of the choices of one stream as their text comes. Knows neither HTTP nor
generated messages."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from pagewire_frontend.message.pieces import MessagePieces, MessageReader
from pagewire_frontend.session.events import Delta, Event, Finished, FinishReason


@dataclass(frozen=True, slots=True)
class MessageDelta:
    """New tokens of one choice and the pieces of their message, which differ from `delta.text`."""

    delta: Delta
    pieces: MessagePieces


@dataclass(frozen=True, slots=True)
class MessageFinished:
    """The end of one choice; `finished.text` is the rest of its content."""

    finished: Finished
    has_called: bool


class ChoiceMessages:
    """Parses the message of each choice with a reader of its own."""

    def __init__(self, new_reader: Callable[[], MessageReader]) -> None:
        self._new_reader = new_reader
        self._readers: dict[int, MessageReader] = {}
        self._next_positions: dict[int, int] = {}

    def take(self, event: Event) -> Iterator[Event | MessageDelta | MessageFinished]:
        """Yield the parsed forms of an event; events that belong to no choice are passed on."""
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
            # A last delta without tokens: the end of a choice carries content alone.
            position = self._next_positions.get(event.choice, 0)
            yield MessageDelta(Delta(event.choice, position), rest)
        finished = replace(event, text=pushed.content + held.content)
        has_called = reader.num_calls > 0 and event.reason is FinishReason.STOP
        yield MessageFinished(finished, has_called)

    def _reader(self, choice: int) -> MessageReader:
        if choice not in self._readers:
            self._readers[choice] = self._new_reader()
        return self._readers[choice]
