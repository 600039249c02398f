"""The common parts of the bodies of /v1/chat/completions and /v1/completions."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, cast

import orjson

from pagewire_frontend.http.kept_streams.making import NOTHING_PINNED, PinnedUsage
from pagewire_frontend.http.kept_streams.pins import Pins
from pagewire_frontend.http.openai.answer import AnsweredPrompt, WholeChoice
from pagewire_frontend.http.openai.logprob_shapes import prompt_logprobs
from pagewire_frontend.http.openai.response_options import ResponseOptions
from pagewire_frontend.http.streaming.event_stream import TextLine
from pagewire_frontend.metrics.timeline import tier_details, timeline_details
from pagewire_frontend.models.tokenizer import TextTokenizer
from pagewire_frontend.session.events import Delta, Finished, PredictedTokens, Usage

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerParts:
    """The data that an answer is shaped from.

    Attributes:
        request_id, model, created: As they stand in every body; seconds since 1970.
        asked: The parts that the client wants to see.
        prompts: The prompts in order; the log-probabilities of each are complete before the first
            event of its choices.
        choices_per_prompt: Choices are numbered prompt by prompt.
        pins: What is drawn for the answer; None for an answer that is not made again.
        pinned_usage: What is known already of its token counts.
    """

    request_id: str
    model: str
    created: int
    tokenizer: TextTokenizer
    asked: ResponseOptions
    prompts: Sequence[AnsweredPrompt]
    choices_per_prompt: int
    pins: Pins | None = None
    pinned_usage: PinnedUsage = NOTHING_PINNED

    def prompt_of(self, number: int) -> AnsweredPrompt:
        """Return the prompt that a choice answers."""
        return self.prompts[number // self.choices_per_prompt]

    def usage_body(self, usage: Usage) -> Json:
        """Return token counts in OpenAI's names."""
        if self.pinned_usage.body:
            return cast("Json", orjson.loads(self.pinned_usage.body))
        cached = self.pinned_usage.cached_tokens
        if cached is None or cached == usage.cached_tokens:
            return usage_body(usage)
        return usage_body(replace(usage, cached_tokens=cached, cached_tokens_by_tier={}))

    def about_prompt(self, index: int) -> Json:
        """Return the fields of a prompt that the client wants besides its text, in vLLM's names."""
        prompt, num_top = self.prompts[index], self.asked.num_prompt_logprobs
        body: Json = {}
        if num_top is not None:
            body["prompt_logprobs"] = prompt_logprobs(prompt.logprobs, num_top, self.tokenizer)
        if self.asked.has_token_ids:
            body["prompt_token_ids"] = list(prompt.token_ids)
        return body


class AnswerFormat(Protocol):
    """The shapes of one endpoint."""

    def opening(self, num_choices: int) -> list[Json]:
        """Return the chunks before any text."""
        ...

    def text_line(self, number: int) -> TextLine | None:
        """Return a function that makes chunks of a choice's text; None where they show more."""
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
        "prompt_tokens_details": {
            "cached_tokens": usage.cached_tokens,
            **tier_details(usage.cached_tokens_by_tier),
        },
        **_prediction_details(usage.predicted),
        **timeline_details(usage.timelines),
        **usage.version_fields,
    }


def _prediction_details(predicted: PredictedTokens | None) -> Json:
    """Return the counts of predicted tokens; nothing without a prediction."""
    if predicted is None:
        return {}
    return {
        "completion_tokens_details": {
            "accepted_prediction_tokens": predicted.num_accepted,
            "rejected_prediction_tokens": predicted.num_rejected,
        }
    }


def end_fields(finished: Finished | None) -> Json:
    """Return the reason for which a choice ended, null while it has not."""
    if finished is None:
        return {"finish_reason": None}
    body: Json = {"finish_reason": finished.reason.value}
    stop = finished.stop_string if finished.stop_string is not None else finished.stop_token_id
    if stop is not None:
        body["stop_reason"] = stop
    return body


class AnswerHead:
    """The common fields of all bodies of one answer."""

    def __init__(self, parts: AnswerParts, *, has_null_usage: bool) -> None:
        self._common = {"created": parts.created, "model": parts.model}
        self._request_id = parts.request_id
        # With a usage chunk at the end, usage is null in all other chunks of a chat. The schema of
        # completions does not allow that.
        shows_null = has_null_usage and parts.asked.has_usage_chunk
        self._no_usage: Json = {"usage": None} if shows_null else {}

    def body(self, prefix: str, kind: str, choices: list[Json]) -> Json:
        """Return a body without usage."""
        name = f"{prefix}-{self._request_id}"
        return {"id": name, "object": kind, **self._common, "choices": choices}

    def chunk(self, prefix: str, kind: str, choices: list[Json]) -> Json:
        """Return a chunk that is not the last."""
        return {**self.body(prefix, kind, choices), **self._no_usage}
