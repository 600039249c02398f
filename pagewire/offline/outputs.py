"""Results of the offline API, with vLLM's names, and the collection of a stream into a result."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pagewire.client.events import (
    Closed,
    Delta,
    Event,
    Finished,
    Opened,
    PromptLogprobs,
    TokenLogprob,
    ToolCall,
    ToolCallDelta,
)
from pagewire.client.tool_convert import joined_calls
from pagewire.offline.short_repr import short_repr


@dataclass(frozen=True, slots=True)
class Logprob:
    """Natural logarithm of a token's probability.

    Attributes:
        logprob: Log-probability before temperature.
        rank: Number of tokens at least as likely, 1 for the most likely; None when unknown.
        decoded_token: Text of the token alone; None unless `LLM` filled it in.
    """

    logprob: float
    rank: int | None = None
    decoded_token: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CompletionOutput:
    """One choice.

    Attributes:
        index: Number of the choice, from 0 to n - 1.
        text: Text without a matched stop string and without special tokens, unless requested.
        token_ids: All tokens, with a stop token.
        cumulative_logprob: Sum over `token_ids`; None unless logprobs were requested.
        logprobs: Per token, the alternatives and the token itself by id; None unless requested.
        finish_reason: "stop", "length", "tool_calls", "abort" or "error".
        stop_reason: The stop string or stop token id; None for the end of sequence.
        tool_calls: The calls in the answer to a chat with tools; they are not in `text`.
        reasoning: Reasoning before the answer, if the model marks it; None without reasoning.
    """

    index: int
    text: str
    token_ids: list[int]
    cumulative_logprob: float | None
    logprobs: list[dict[int, Logprob]] | None
    finish_reason: str | None
    stop_reason: str | int | None
    tool_calls: list[ToolCall] = field(default_factory=list)
    reasoning: str | None = None

    def __repr__(self) -> str:
        return short_repr(self)


@dataclass(frozen=True, slots=True, repr=False)
class RequestMetrics:
    """Seconds and counts, measured by the frontend.

    `num_cached_tokens_by_tier` counts cached tokens by tier, as `Usage` does; `num_recoveries`
    counts losses of workers and schedulers that the request survived; `weights_version` is that of
    the weights that computed all of the answer.
    """

    time_to_first_token_seconds: float
    total_seconds: float
    num_resumes: int
    num_cached_tokens: int
    num_cached_tokens_by_tier: dict[str, int] = field(default_factory=dict)
    num_recoveries: int = 0
    weights_version: str = ""

    def __repr__(self) -> str:
        return short_repr(self)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RequestOutput:
    """The result of one prompt.

    Attributes:
        request_id: Id of the request in hex.
        prompt: Text of the prompt; None when it was given as token ids.
        prompt_token_ids: Tokens of the prompt.
        outputs: One output per choice.
        finished: Whether every choice has ended.
        metrics: None until the request has ended.
        prompt_logprobs: Per token of the prompt, the alternatives and the token itself by id; None
            for the first token, which has no prediction. None unless requested.
    """

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]
    finished: bool
    metrics: RequestMetrics | None
    prompt_logprobs: list[dict[int, Logprob] | None] | None = None

    def __repr__(self) -> str:
        return short_repr(self)


Texts = Mapping[int, str]
"""Text of each token id."""


@dataclass(slots=True)
class _Choice:
    texts: list[str] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    calls: list[ToolCallDelta] = field(default_factory=list)
    finished: Finished | None = None

    def output(self, index: int, has_logprobs: bool, texts: Texts) -> CompletionOutput:
        return CompletionOutput(
            index=index,
            text="".join(self.texts),
            token_ids=list(self.token_ids),
            cumulative_logprob=sum(e.logprob for e in self.logprobs) if has_logprobs else None,
            logprobs=[_alternatives(entry, texts) for entry in self.logprobs]
            if has_logprobs
            else None,
            finish_reason=self.finished.reason if self.finished else None,
            stop_reason=self.finished.stop if self.finished else None,
            tool_calls=joined_calls(self.calls),
            reasoning="".join(self.reasoning) or None,
        )


def _alternatives(entry: TokenLogprob, texts: Texts) -> dict[int, Logprob]:
    result = {
        token_id: Logprob(logprob, rank, texts.get(token_id))
        for rank, (token_id, logprob) in enumerate(entry.top, start=1)
    }
    own = Logprob(entry.logprob, entry.rank or None, texts.get(entry.token_id))
    if entry.rank or entry.token_id not in result:
        result[entry.token_id] = own
    return result


class OutputCollector:
    """Collects the events of one stream into a RequestOutput."""

    def __init__(
        self, num_choices: int, has_logprobs: bool, has_prompt_logprobs: bool = False
    ) -> None:
        self._has_logprobs = has_logprobs
        self._has_prompt_logprobs = has_prompt_logprobs
        self._prompt_logprobs: list[TokenLogprob] = []
        self._choices = [_Choice() for _ in range(num_choices)]
        self._opened: Opened | None = None
        self._closed: Closed | None = None

    def add(self, event: Event) -> None:
        """Add the next event of the stream."""
        match event:
            case Opened():
                self._opened = event
            case PromptLogprobs():
                is_next = event.first_position == len(self._prompt_logprobs) + 1
                assert is_next, "the log-probabilities of the prompt have a gap"
                self._prompt_logprobs += event.logprobs
            case Delta():
                choice = self._choices[event.choice]
                assert event.first_position == len(choice.token_ids), "the stream has a gap"
                choice.token_ids += event.token_ids
                choice.texts.append(event.text)
                choice.logprobs += event.logprobs
                choice.reasoning.append(event.reasoning)
                choice.calls += event.tool_calls
            case Finished():
                self._choices[event.choice].finished = event
                self._choices[event.choice].texts.append(event.text)
            case Closed():
                self._closed = event

    def named_token_ids(self) -> set[int]:
        """Return every token id in the log-probabilities collected so far."""
        entries = [*self._prompt_logprobs]
        for choice in self._choices:
            entries += choice.logprobs
        own = {entry.token_id for entry in entries}
        return own | {token_id for entry in entries for token_id, _ in entry.top}

    def result(
        self,
        prompt: str | None,
        prompt_token_ids: Sequence[int] = (),
        texts: Texts | None = None,
    ) -> RequestOutput:
        """Return the output so far, with the texts of tokens from `texts`."""
        opened, closed, texts = self._opened, self._closed, texts or {}
        return RequestOutput(
            request_id=opened.request_id if opened else "",
            prompt=prompt,
            prompt_token_ids=list(opened.prompt_token_ids if opened else prompt_token_ids),
            outputs=[c.output(i, self._has_logprobs, texts) for i, c in enumerate(self._choices)],
            finished=closed is not None,
            metrics=_metrics(closed) if closed else None,
            prompt_logprobs=[None, *(_alternatives(e, texts) for e in self._prompt_logprobs)]
            if self._has_prompt_logprobs
            else None,
        )


def _metrics(closed: Closed) -> RequestMetrics:
    timings = closed.timings
    return RequestMetrics(
        timings.time_to_first_token_seconds,
        timings.total_seconds,
        timings.num_resumes,
        closed.usage.cached_tokens,
        closed.usage.cached_tokens_by_tier,
        timings.num_recoveries,
        closed.usage.weights_version,
    )
