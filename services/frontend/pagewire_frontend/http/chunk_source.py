"""The chunks of an answer, as the bytes of server-sent events. Owns no stream."""

from collections.abc import Callable

from pagewire_frontend.http.answer import Answer
from pagewire_frontend.http.answer_head import AnswerFormat
from pagewire_frontend.http.event_stream import DONE, event_bytes


class ChunkSource:
    """A LiveStream's source: what is ready of an answer, in an endpoint's shapes."""

    def __init__(self, answer: Answer, form: AnswerFormat, *, has_usage_chunk: bool) -> None:
        self._answer = answer
        self._form = form
        self._has_usage_chunk = has_usage_chunk
        self._is_open = False

    @property
    def is_over(self) -> bool:
        """Whether the last event was taken."""
        return self._answer.is_over

    def listen(self, on_ready: Callable[[], None]) -> None:
        """Call `on_ready` whenever there is something to take."""
        self._answer.listen(on_ready)

    def take(self) -> bytes:
        """Return the events that are ready. Raises PagewireError when the answer failed."""
        lines = []
        for number, event in self._answer.take():
            if not self._is_open:
                # Not before: only now all that is said of the prompt is known.
                lines += [event_bytes(it) for it in self._form.opening(self._answer.num_choices)]
                self._is_open = True
            lines.append(self._form.line(number, event))
        if self._answer.is_over:
            if self._has_usage_chunk:
                lines.append(event_bytes(self._form.usage_chunk(self._answer.usage)))
            lines.append(DONE)
        return b"".join(lines)
