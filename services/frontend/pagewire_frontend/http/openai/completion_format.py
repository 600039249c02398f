"""Shapes the bodies of /v1/completions, whole and streamed."""

from collections.abc import Sequence
from functools import partial

from pagewire_frontend.http.openai.answer import WholeChoice
from pagewire_frontend.http.openai.answer_head import (
    AnswerHead,
    AnswerParts,
    Json,
    end_fields,
)
from pagewire_frontend.http.openai.logprob_shapes import CompletionLogprobs, TokenNamer
from pagewire_frontend.http.streaming.event_stream import TextLine, ready_line
from pagewire_frontend.session.events import Delta, Finished, Usage
from pagewire_frontend.session.journal_records import TokenLogprob


class CompletionFormat:
    """Shapes of /v1/completions."""

    _prefix, _kind = "cmpl", "text_completion"

    def __init__(self, parts: AnswerParts) -> None:
        self._parts = parts
        self._asked = parts.asked
        self._head = AnswerHead(parts, has_null_usage=False)
        asked = parts.asked
        self._namer = TokenNamer(parts.tokenizer, has_ids=asked.has_ids_as_tokens)
        shows_scores = asked.num_logprobs is not None or asked.num_prompt_logprobs is not None
        self._is_text_alone = not (shows_scores or asked.has_token_ids or asked.has_echo)
        self._text_lines: dict[int, TextLine] = {}
        self._logprobs: dict[int, CompletionLogprobs] = {}
        self._begun: set[int] = set()
        self._prompts: dict[int, Json] = {}

    def opening(self, num_choices: int) -> list[Json]:
        """Return nothing: completions begin with text."""
        return []

    def text_line(self, number: int) -> TextLine | None:
        """Return a function that makes chunks of a choice's text; None where they show more."""
        if not self._is_text_alone:
            return None
        line = self._text_lines.get(number)
        if line is None:
            line = ready_line(partial(self._text_chunk, number))
            self._text_lines[number] = line
        return line

    def _text_chunk(self, number: int, text: str) -> Json:
        choice = {"index": number, "text": text, "logprobs": None, **end_fields(None)}
        return self._head.chunk(self._prefix, self._kind, [choice])

    def chunk(self, number: int, event: Delta | Finished) -> Json | None:
        """Return the chunk of an event, or None when it has nothing to show. The first chunk of a
        choice also has the fields of the prompt, and begins with its text for an echo."""
        finished = event if isinstance(event, Finished) else None
        delta = event if isinstance(event, Delta) else Delta(number, 0)
        is_first = number not in self._begun
        first = self._of_prompt(number) if is_first else {}
        text = self._echo(number) + event.text if is_first else event.text
        logprobs = None
        if finished is None or (is_first and self._asked.has_echo):
            logprobs = self._take(number, delta.logprobs, is_first=is_first)
        has_tokens = delta.token_ids if self._asked.has_token_ids else logprobs
        if finished is None and not text and not first and not has_tokens:
            return None
        self._begun.add(number)
        choice = {"index": number, "text": text, "logprobs": logprobs, **end_fields(finished)}
        if self._asked.has_token_ids:
            choice["token_ids"] = delta.token_ids
        return self._head.chunk(self._prefix, self._kind, [{**choice, **first}])

    def usage_chunk(self, usage: Usage) -> Json:
        """Return the last chunk, with token counts."""
        body = self._head.chunk(self._prefix, self._kind, [])
        return {**body, "usage": self._parts.usage_body(usage)}

    def whole(self, choices: Sequence[WholeChoice], usage: Usage) -> Json:
        """Return the answer that is not streamed."""
        items = []
        for number, choice in enumerate(choices):
            item = {
                "index": number,
                "text": self._echo(number) + choice.text,
                "logprobs": self._take(number, choice.logprobs, is_first=True),
                **end_fields(choice.finished),
                **self._of_prompt(number),
            }
            if self._asked.has_token_ids:
                item["token_ids"] = choice.token_ids
            items.append(item)
        return {
            **self._head.body(self._prefix, self._kind, items),
            "usage": self._parts.usage_body(usage),
        }

    def _echo(self, number: int) -> str:
        return self._parts.prompt_of(number).text if self._asked.has_echo else ""

    def _take(
        self, number: int, logprobs: Sequence[TokenLogprob], *, is_first: bool
    ) -> Json | None:
        """Return the arrays of the next tokens of a choice; an echo begins with the prompt's."""
        num_top = self._asked.num_logprobs
        if num_top is None:
            return None
        running = self._logprobs.setdefault(number, CompletionLogprobs(self._namer, num_top))
        if not is_first or not self._asked.has_echo:
            return running.take(logprobs)
        prompt = self._parts.prompt_of(number)
        return running.take([*prompt.logprobs, *logprobs], first_token_id=prompt.token_ids[0])

    def _of_prompt(self, number: int) -> Json:
        """Return the fields that every choice of a prompt repeats; made once, because they may be
        large."""
        index = number // self._parts.choices_per_prompt
        if index not in self._prompts:
            self._prompts[index] = self._parts.about_prompt(index)
        return self._prompts[index]
