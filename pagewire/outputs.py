"""Results of the offline API, named as users know them from vLLM, and how a stream becomes one."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from pagewire.events import Closed, Delta, Event, Finished, Opened, TokenLogprob


@dataclass(frozen=True, slots=True)
class Logprob:
    """Natural logarithm of a token's probability; `rank` from 1, None below those reported."""

    logprob: float
    rank: int | None = None


@dataclass(frozen=True, slots=True)
class CompletionOutput:
    """One choice.

    Attributes:
        index: From 0 to n - 1.
        text: Without a matched stop string and without special tokens, unless asked for.
        token_ids: All tokens, a stop token included.
        cumulative_logprob: Sum over `token_ids`; None unless logprobs were asked for.
        logprobs: Per token, the alternatives and the token itself by id; None unless asked for.
        finish_reason: "stop", "length", "abort" or "error".
        stop_reason: The stop string or stop token id; None for the end of sequence.
    """

    index: int
    text: str
    token_ids: list[int]
    cumulative_logprob: float | None
    logprobs: list[dict[int, Logprob]] | None
    finish_reason: str | None
    stop_reason: str | int | None


@dataclass(frozen=True, slots=True)
class RequestMetrics:
    """Seconds and counts, measured by the frontend."""

    time_to_first_token_seconds: float
    total_seconds: float
    num_resumes: int
    num_cached_tokens: int


@dataclass(frozen=True, slots=True)
class RequestOutput:
    """The result of one prompt.

    Attributes:
        request_id: In hex.
        prompt: Its text; None when it was given as token ids.
        prompt_token_ids: Its tokens.
        outputs: One per choice.
        finished: Whether every choice has ended.
        metrics: None until the request has ended.
    """

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]
    finished: bool
    metrics: RequestMetrics | None


@dataclass(slots=True)
class _Choice:
    texts: list[str] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    finished: Finished | None = None

    def output(self, index: int, has_logprobs: bool) -> CompletionOutput:
        return CompletionOutput(
            index=index,
            text="".join(self.texts),
            token_ids=self.token_ids,
            cumulative_logprob=sum(e.logprob for e in self.logprobs) if has_logprobs else None,
            logprobs=[_alternatives(entry) for entry in self.logprobs] if has_logprobs else None,
            finish_reason=self.finished.reason if self.finished else None,
            stop_reason=self.finished.stop if self.finished else None,
        )


def _alternatives(entry: TokenLogprob) -> dict[int, Logprob]:
    result = {
        token_id: Logprob(logprob, rank)
        for rank, (token_id, logprob) in enumerate(entry.top, start=1)
    }
    result.setdefault(entry.token_id, Logprob(entry.logprob))
    return result


class OutputCollector:
    """Collects the events of one stream into a RequestOutput."""

    def __init__(self, num_choices: int, has_logprobs: bool) -> None:
        self._has_logprobs = has_logprobs
        self._choices = [_Choice() for _ in range(num_choices)]
        self._opened: Opened | None = None
        self._closed: Closed | None = None

    def add(self, event: Event) -> None:
        """Take the next event of the stream."""
        match event:
            case Opened():
                self._opened = event
            case Delta():
                choice = self._choices[event.choice]
                assert event.first_position == len(choice.token_ids), "the stream has a gap"
                choice.token_ids += event.token_ids
                choice.texts.append(event.text)
                choice.logprobs += event.logprobs
            case Finished():
                self._choices[event.choice].finished = event
                self._choices[event.choice].texts.append(event.text)
            case Closed():
                self._closed = event

    def result(self, prompt: str | None, prompt_token_ids: Sequence[int] = ()) -> RequestOutput:
        """Return what was collected so far."""
        opened, closed = self._opened, self._closed
        return RequestOutput(
            request_id=opened.request_id if opened else "",
            prompt=prompt,
            prompt_token_ids=list(opened.prompt_token_ids if opened else prompt_token_ids),
            outputs=[c.output(i, self._has_logprobs) for i, c in enumerate(self._choices)],
            finished=closed is not None,
            metrics=_metrics(closed) if closed else None,
        )


def _metrics(closed: Closed) -> RequestMetrics:
    timings = closed.timings
    return RequestMetrics(
        timings.time_to_first_token_seconds,
        timings.total_seconds,
        timings.num_resumes,
        closed.usage.cached_tokens,
    )
