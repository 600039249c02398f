"""Shapes the events of an answer as the bytes of server-sent events, for a LiveStream."""

from collections.abc import Callable

from pagewire_frontend.http.openai.answer import Answer
from pagewire_frontend.http.openai.answer_head import AnswerFormat
from pagewire_frontend.http.streaming.event_stream import DONE, TextLine, event_bytes
from pagewire_frontend.session.events import OnText


class ChunkSource:
    """The source of a LiveStream: ready events of an answer, in an endpoint's shapes."""

    def __init__(self, answer: Answer, form: AnswerFormat, *, has_usage_chunk: bool) -> None:
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

    def listen(self, on_ready: Callable[[], None], on_text: OnText) -> None:
        """Call `on_ready` whenever there are events to take; `on_text` is offered the text of an
        answer that has one choice."""
        self._answer.listen(on_ready, on_text)

    def take(self) -> bytes:
        """Return the events that are ready. Raises PagewireError when the answer failed."""
        lines = []
        for number, event in self._answer.take():
            if not self._is_open:
                # Not before: only now all facts about the prompt are known.
                lines += [event_bytes(it) for it in self._form.opening(self._answer.num_choices)]
                self._is_open = True
                self.text_line = self._form.text_line(0)
            lines.append(self._form.line(number, event))
        if self._answer.is_over:
            if self._has_usage_chunk:
                lines.append(event_bytes(self._form.usage_chunk(self._answer.usage)))
            lines.append(DONE)
        return b"".join(lines)
