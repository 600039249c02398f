"""Shapes the bodies of /v1/chat/completions, whole and streamed. Owns the readers of the text of
each choice."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from pagewire_frontend.http.openai.answer import WholeChoice
from pagewire_frontend.http.openai.answer_head import (
    AnswerHead,
    AnswerParts,
    Json,
    end_fields,
)
from pagewire_frontend.http.openai.logprob_shapes import TokenNamer, chat_logprobs
from pagewire_frontend.http.streaming.event_stream import TextLine, event_bytes, ready_line
from pagewire_frontend.message.pieces import (
    MessagePieces,
    MessageReader,
    PlainReader,
    ToolCallDelta,
    merged,
)
from pagewire_frontend.session.events import Delta, Finished, FinishReason, Usage


class ChatFormat:
    """Shapes of /v1/chat/completions."""

    _prefix, _kind, _chunk_kind = "chatcmpl", "chat.completion", "chat.completion.chunk"

    def __init__(
        self, parts: AnswerParts, *, new_reader: Callable[[], MessageReader] = PlainReader
    ) -> None:
        self._parts = parts
        self._asked = parts.asked
        self._head = AnswerHead(parts, has_null_usage=True)
        self._namer = TokenNamer(parts.tokenizer, has_ids=parts.asked.has_ids_as_tokens)
        self._new_reader = new_reader
        self._readers: dict[int, MessageReader] = {}
        self._is_text_alone = self._asked.num_logprobs is None and not self._asked.has_token_ids
        self._text_lines: dict[int, TextLine] = {}

    def opening(self, num_choices: int) -> list[Json]:
        """Return one chunk per choice that names the role; the first also has the fields of the
        prompt."""
        delta = {"role": "assistant", "content": self._parts.prompts[0].text}
        chunks = [
            self._chunk([{"index": number, "delta": delta, "finish_reason": None}])
            for number in range(num_choices)
        ]
        chunks[0].update(self._parts.about_prompt(0))
        return chunks

    def text_line(self, number: int) -> TextLine | None:
        """Return a function that makes chunks of a choice's text; None where they show more."""
        if not self._is_text_alone:
            return None
        line = self._text_lines.get(number)
        if line is None:
            plain = ready_line(lambda text: self._delta_chunk(number, {"content": text}))
            reader = self._reader(number)
            is_plain = isinstance(reader, PlainReader)
            line = plain if is_plain else partial(self._read_line, number, reader, plain)
            self._text_lines[number] = line
        return line

    def _read_line(self, number: int, reader: MessageReader, plain: TextLine, text: str) -> bytes:
        pieces = reader.push(text)
        if not pieces.reasoning and not pieces.calls:
            return plain(pieces.content)
        delta = self._delta(number, pieces)
        return event_bytes(self._delta_chunk(number, delta)) if delta else b""

    def _delta_chunk(self, number: int, delta: Json) -> Json:
        return self._chunk([{"index": number, "delta": delta, **end_fields(None)}])

    def chunk(self, number: int, event: Delta | Finished) -> Json | None:
        """Return the chunk of an event, or None when it has nothing to show."""
        finished = event if isinstance(event, Finished) else None
        shown: Json = {}
        if isinstance(event, Delta):
            if self._asked.num_logprobs is not None and event.logprobs:
                shown["logprobs"] = chat_logprobs(event.logprobs, self._namer)
            if self._asked.has_token_ids:
                shown["token_ids"] = event.token_ids
        reader = self._reader(number)
        delta = self._delta(number, _read(reader, event.text, is_ended=finished is not None))
        if finished is None and not delta and not shown:
            return None
        choice: Json = {"index": number, "delta": delta}
        return self._chunk([{**choice, **shown, **_end(finished, reader)}])

    def usage_chunk(self, usage: Usage) -> Json:
        """Return the last chunk, with token counts."""
        return {**self._chunk([]), "usage": self._parts.usage_body(usage)}

    def whole(self, choices: Sequence[WholeChoice], usage: Usage) -> Json:
        """Return the answer that is not streamed."""
        items = [self._choice(number, choice) for number, choice in enumerate(choices)]
        body = self._head.body(self._prefix, self._kind, items)
        return {**body, "usage": self._parts.usage_body(usage), **self._parts.about_prompt(0)}

    def _reader(self, number: int) -> MessageReader:
        reader = self._readers.get(number)
        if reader is None:
            reader = self._readers[number] = self._new_reader()
        return reader

    def _delta(self, number: int, pieces: MessagePieces) -> Json:
        delta: Json = {}
        if pieces.reasoning and self._asked.has_reasoning:
            delta["reasoning_content"] = pieces.reasoning
        if pieces.content:
            delta["content"] = pieces.content
        if pieces.calls:
            delta["tool_calls"] = [_call_delta(self._named(number, call)) for call in pieces.calls]
        return delta

    def _choice(self, number: int, choice: WholeChoice) -> Json:
        reader = self._new_reader()
        pieces = _read(reader, choice.text, is_ended=True)
        has_logprobs = self._asked.num_logprobs is not None
        item = {
            "index": number,
            "message": self._message(number, pieces),
            "logprobs": chat_logprobs(choice.logprobs, self._namer) if has_logprobs else None,
            **_end(choice.finished, reader),
        }
        if self._asked.has_token_ids:
            item["token_ids"] = choice.token_ids
        return item

    def _message(self, number: int, pieces: MessagePieces) -> Json:
        """Return a whole message; null fields are left out unless OpenAI's schema requires them."""
        text = self._parts.prompts[0].text + pieces.content
        message: Json = {
            "role": "assistant",
            "content": text if text or not pieces.calls else None,
            "refusal": None,
        }
        if pieces.reasoning and self._asked.has_reasoning:
            message["reasoning_content"] = pieces.reasoning
        if pieces.calls:
            message["tool_calls"] = [
                _whole_call(self._named(number, call)) for call in pieces.calls
            ]
        return message

    def _named(self, number: int, call: ToolCallDelta) -> ToolCallDelta:
        """Return a call of a choice with the id that it has whenever the answer is made."""
        pins = self._parts.pins
        if pins is None or call.call_id is None:
            return call
        return replace(call, call_id=pins.call_id(number, call.index, call.call_id))

    def _chunk(self, choices: list[Json]) -> Json:
        return self._head.chunk(self._prefix, self._chunk_kind, choices)


def _read(reader: MessageReader, text: str, *, is_ended: bool) -> MessagePieces:
    pieces = reader.push(text) if text else MessagePieces()
    return merged(pieces, reader.finish()) if is_ended else pieces


def _end(finished: Finished | None, reader: MessageReader) -> Json:
    """Return the end of a choice: with its calls, if it has some and was not cut off."""
    body = end_fields(finished)
    if finished is not None and finished.reason is FinishReason.STOP and reader.num_calls:
        body["finish_reason"] = "tool_calls"
    return body


def _call_delta(call: ToolCallDelta) -> Json:
    if call.call_id is None:
        return {"index": call.index, "function": {"arguments": call.arguments}}
    return {"index": call.index, **_whole_call(call)}


def _whole_call(call: ToolCallDelta) -> Json:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.call_id, "type": "function", "function": function}
