"""Makes the chunks of a streamed answer, in the shapes of an endpoint."""

from collections.abc import AsyncIterator, Callable
from typing import Any

from pagewire_frontend.http.openai.answer import Answer
from pagewire_frontend.http.openai.answer_head import AnswerFormat
from pagewire_frontend.http.openai.delivery import shaped
from pagewire_frontend.http.openai.response_options import ResponseOptions
from pagewire_frontend.http.streaming.event_stream import DONE, OnEvent, TextLine, event_bytes
from pagewire_frontend.session.events import Delta, Finished, OnText


class ChunkSource:
    """The source of a LiveStream: ready events of an answer, in an endpoint's shapes."""

    def __init__(
        self, answer: Answer, form: AnswerFormat, *, has_usage_chunk: bool = False
    ) -> None:
        self._answer = answer
        self._form = form
        self._has_usage_chunk = has_usage_chunk
        self._is_open = False
        self.text_line: TextLine | None = None
        """Makes an event of offered text; None until the opening was taken."""

    @property
    def is_over(self) -> bool:
        """Whether the last event was taken."""
        return self._answer.is_over

    def listen(
        self, on_ready: Callable[[], None], on_text: OnText, on_event: OnEvent | None = None
    ) -> None:
        """Call `on_ready` whenever there are events to take; `on_text` is offered the text of an
        answer that has one choice."""
        self._answer.listen(on_ready, on_text)

    def take(self) -> bytes:
        """Return the events that are ready, the last of all with them. Raises PagewireError when
        the answer failed."""
        lines = [self.take_chunks()]
        if self._answer.is_over:
            if self._has_usage_chunk:
                lines.append(event_bytes(self._form.usage_chunk(self._answer.usage)))
            lines.append(DONE)
        return b"".join(lines)

    def take_chunks(self) -> bytes:
        """Return the ready events of choices. Raises PagewireError when the answer failed."""
        lines = []
        for number, event in self._answer.take():
            if not self._is_open:
                # Not before: only now all facts about the prompt are known.
                lines += [event_bytes(it) for it in self._form.opening(self._answer.num_choices)]
                self._is_open = True
                self.text_line = self._form.text_line(0)
            lines.append(self._line(number, event))
        return b"".join(lines)

    def _line(self, number: int, event: Delta | Finished) -> bytes:
        """Return the chunk of an event as it is streamed, empty when it has nothing to show."""
        if isinstance(event, Delta):
            text_line = self._form.text_line(number)
            if text_line is not None:
                return text_line(event.text)
        chunk = self._form.chunk(number, event)
        return b"" if chunk is None else event_bytes(chunk)


async def chunks(
    answer: Answer, form: AnswerFormat, shown: ResponseOptions
) -> AsyncIterator[list[dict[str, Any]]]:
    """Yield the chunks of choices; shaping them is long work, done in a thread."""
    is_open = False
    async for number, event in answer.events():
        if not is_open:
            # Not before: only now all facts about the prompt are known.
            yield await shaped(shown, form.opening, answer.num_choices)
            is_open = True
        chunk = await shaped(shown, form.chunk, number, event)
        if chunk is not None:
            yield [chunk]
