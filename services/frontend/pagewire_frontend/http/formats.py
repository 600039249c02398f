"""The bodies of answers: chat and completion, whole and streamed. Pure shaping; owns no stream."""

from collections.abc import Sequence
from typing import Any, Protocol

from pagewire_frontend.events import Delta, Finished, Usage
from pagewire_frontend.http.answer import WholeChoice
from pagewire_frontend.http.logprobs import CompletionLogprobs, chat_logprobs
from pagewire_frontend.tokenizer import TextTokenizer

Json = dict[str, Any]


class AnswerFormat(Protocol):
    """One endpoint's shapes."""

    def opening(self, num_choices: int) -> list[Json]:
        """Return the chunks before any text."""
        ...

    def chunk(self, number: int, event: Delta | Finished) -> Json | None:
        """Return the chunk of an event, or None when it has nothing to show."""
        ...

    def usage_chunk(self, usage: Usage) -> Json:
        """Return the last chunk, with token counts."""
        ...

    def whole(self, choices: Sequence[WholeChoice], usage: Usage) -> Json:
        """Return the answer that is not streamed."""
        ...


def usage_body(usage: Usage) -> Json:
    """Return token counts in OpenAI's names."""
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    }


def _end(finished: Finished | None) -> Json:
    if finished is None:
        return {"finish_reason": None}
    body: Json = {"finish_reason": finished.reason.value}
    stop = finished.stop_string if finished.stop_string is not None else finished.stop_token_id
    if stop is not None:
        body["stop_reason"] = stop
    return body


class _Head:
    """What all bodies of one answer have in common."""

    def __init__(self, request_id: str, model: str, created: int, *, has_usage_chunk: bool) -> None:
        self._common = {"created": created, "model": model}
        self._request_id = request_id
        # With a usage chunk at the end, all others say that they have none.
        self._no_usage: Json = {"usage": None} if has_usage_chunk else {}

    def body(self, prefix: str, kind: str, choices: list[Json]) -> Json:
        name = f"{prefix}-{self._request_id}"
        return {"id": name, "object": kind, **self._common, "choices": choices}

    def chunk(self, prefix: str, kind: str, choices: list[Json]) -> Json:
        return {**self.body(prefix, kind, choices), **self._no_usage}


class ChatFormat:
    """Shapes of /v1/chat/completions."""

    _prefix, _kind, _chunk_kind = "chatcmpl", "chat.completion", "chat.completion.chunk"

    def __init__(
        self,
        request_id: str,
        model: str,
        created: int,
        tokenizer: TextTokenizer,
        *,
        has_logprobs: bool,
        has_usage_chunk: bool,
    ) -> None:
        self._head = _Head(request_id, model, created, has_usage_chunk=has_usage_chunk)
        self._tokenizer = tokenizer
        self._has_logprobs = has_logprobs

    def opening(self, num_choices: int) -> list[Json]:
        """Return one chunk per choice that names the role."""
        delta = {"role": "assistant", "content": ""}
        return [
            self._chunk([{"index": number, "delta": delta, "finish_reason": None}])
            for number in range(num_choices)
        ]

    def chunk(self, number: int, event: Delta | Finished) -> Json | None:
        """Return the chunk of an event, or None when it has nothing to show."""
        finished = event if isinstance(event, Finished) else None
        logprobs = event.logprobs if isinstance(event, Delta) and self._has_logprobs else None
        if finished is None and not event.text and not logprobs:
            return None
        choice: Json = {"index": number, "delta": {"content": event.text} if event.text else {}}
        if logprobs:
            choice["logprobs"] = chat_logprobs(logprobs, self._tokenizer)
        return self._chunk([{**choice, **_end(finished)}])

    def usage_chunk(self, usage: Usage) -> Json:
        """Return the last chunk, with token counts."""
        return {**self._chunk([]), "usage": usage_body(usage)}

    def whole(self, choices: Sequence[WholeChoice], usage: Usage) -> Json:
        """Return the answer that is not streamed."""
        items = [
            {
                "index": number,
                "message": {"role": "assistant", "content": choice.text, "refusal": None},
                "logprobs": chat_logprobs(choice.logprobs, self._tokenizer)
                if self._has_logprobs
                else None,
                **_end(choice.finished),
            }
            for number, choice in enumerate(choices)
        ]
        body = self._head.body(self._prefix, self._kind, items)
        return {**body, "usage": usage_body(usage)}

    def _chunk(self, choices: list[Json]) -> Json:
        return self._head.chunk(self._prefix, self._chunk_kind, choices)


class CompletionFormat:
    """Shapes of /v1/completions."""

    _prefix, _kind = "cmpl", "text_completion"

    def __init__(
        self,
        request_id: str,
        model: str,
        created: int,
        tokenizer: TextTokenizer,
        *,
        has_logprobs: bool,
        has_usage_chunk: bool,
    ) -> None:
        self._head = _Head(request_id, model, created, has_usage_chunk=has_usage_chunk)
        self._tokenizer = tokenizer
        self._has_logprobs = has_logprobs
        self._logprobs: dict[int, CompletionLogprobs] = {}

    def opening(self, num_choices: int) -> list[Json]:
        """Return nothing: completions begin with text."""
        return []

    def chunk(self, number: int, event: Delta | Finished) -> Json | None:
        """Return the chunk of an event, or None when it has nothing to show."""
        finished = event if isinstance(event, Finished) else None
        logprobs = None
        if isinstance(event, Delta) and self._has_logprobs:
            if number not in self._logprobs:
                self._logprobs[number] = CompletionLogprobs(self._tokenizer)
            logprobs = self._logprobs[number].take(event.logprobs)
        if finished is None and not event.text and not logprobs:
            return None
        choice = {"index": number, "text": event.text, "logprobs": logprobs, **_end(finished)}
        return self._head.chunk(self._prefix, self._kind, [choice])

    def usage_chunk(self, usage: Usage) -> Json:
        """Return the last chunk, with token counts."""
        body = self._head.chunk(self._prefix, self._kind, [])
        return {**body, "usage": usage_body(usage)}

    def whole(self, choices: Sequence[WholeChoice], usage: Usage) -> Json:
        """Return the answer that is not streamed."""
        items = [
            {
                "index": number,
                "text": choice.text,
                "logprobs": CompletionLogprobs(self._tokenizer).take(choice.logprobs)
                if self._has_logprobs
                else None,
                **_end(choice.finished),
            }
            for number, choice in enumerate(choices)
        ]
        return {**self._head.body(self._prefix, self._kind, items), "usage": usage_body(usage)}
