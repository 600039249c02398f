"""Shapes of /v1/chat/completions, whole and streamed. Pure shaping; owns no stream."""

from collections.abc import Sequence

from pagewire_frontend.events import Delta, Finished, Usage
from pagewire_frontend.http.answer import WholeChoice
from pagewire_frontend.http.answer_head import (
    AnswerHead,
    AnswerParts,
    Json,
    end_fields,
    usage_body,
)
from pagewire_frontend.http.logprobs import chat_logprobs


class ChatFormat:
    """Shapes of /v1/chat/completions."""

    _prefix, _kind, _chunk_kind = "chatcmpl", "chat.completion", "chat.completion.chunk"

    def __init__(self, parts: AnswerParts) -> None:
        self._parts = parts
        self._asked = parts.asked
        self._head = AnswerHead(parts)

    def opening(self, num_choices: int) -> list[Json]:
        """Return one chunk per choice that names the role; the first also tells of the prompt."""
        delta = {"role": "assistant", "content": self._parts.prompts[0].text}
        chunks = [
            self._chunk([{"index": number, "delta": delta, "finish_reason": None}])
            for number in range(num_choices)
        ]
        chunks[0].update(self._parts.about_prompt(0))
        return chunks

    def chunk(self, number: int, event: Delta | Finished) -> Json | None:
        """Return the chunk of an event, or None when it has nothing to show."""
        finished = event if isinstance(event, Finished) else None
        shown: Json = {}
        if isinstance(event, Delta):
            if self._asked.num_logprobs is not None and event.logprobs:
                shown["logprobs"] = chat_logprobs(event.logprobs, self._parts.tokenizer)
            if self._asked.has_token_ids:
                shown["token_ids"] = event.token_ids
        if finished is None and not event.text and not shown:
            return None
        choice: Json = {"index": number, "delta": {"content": event.text} if event.text else {}}
        return self._chunk([{**choice, **shown, **end_fields(finished)}])

    def usage_chunk(self, usage: Usage) -> Json:
        """Return the last chunk, with token counts."""
        return {**self._chunk([]), "usage": usage_body(usage)}

    def whole(self, choices: Sequence[WholeChoice], usage: Usage) -> Json:
        """Return the answer that is not streamed."""
        items = [self._choice(number, choice) for number, choice in enumerate(choices)]
        body = self._head.body(self._prefix, self._kind, items)
        return {**body, "usage": usage_body(usage), **self._parts.about_prompt(0)}

    def _choice(self, number: int, choice: WholeChoice) -> Json:
        text = self._parts.prompts[0].text + choice.text
        has_logprobs = self._asked.num_logprobs is not None
        item = {
            "index": number,
            "message": {"role": "assistant", "content": text, "refusal": None},
            "logprobs": chat_logprobs(choice.logprobs, self._parts.tokenizer)
            if has_logprobs
            else None,
            **end_fields(choice.finished),
        }
        if self._asked.has_token_ids:
            item["token_ids"] = choice.token_ids
        return item

    def _chunk(self, choices: list[Json]) -> Json:
        return self._head.chunk(self._prefix, self._chunk_kind, choices)
