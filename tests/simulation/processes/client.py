"""A client of one request: what it asks, what the naive model says it must get, and a reader that
holds every event against that."""

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

from simulation.coverage import Coverage, Violation
from simulation.model.naive import (
    BAD_GRAMMAR,
    LETTERS,
    Windows,
    cells_of,
    embed,
    generate,
    root_cell,
    scores,
)
from simulation.model.naive_beams import search

from pagewire_frontend.session.events import Closed, Delta, Finished, FinishReason, PromptLogprobs
from pagewire_frontend.session.journal_records import TokenLogprob
from pagewire_frontend.session.session import Session
from pagewire_shared.errors import PagewireError
from pagewire_shared.identity.ids import RequestId
from pagewire_shared.sampling.params import SamplingParams
from pagewire_shared.sampling.pooling import PoolingParams


@dataclass(slots=True)
class Ask:
    """A request as its client means it, and what may happen to it.

    Attributes:
        is_poison: It makes every step fail that it is in.
        adapter: Content id of its adapter; empty for none.
        outputs: What it must get, by what the weights add to the root of its cells.
        weights_of: Returns that, for the weights that its output is of.
        deadly_after: The worker dies that computes what comes after so many of its output tokens;
            None for a harmless one.
    """

    request_id: RequestId
    prompt: tuple[int, ...]
    params: SamplingParams
    eos_ids: tuple[int, ...]
    tenant: str | None
    cache_salt: bytes | None
    salt: bytes
    priority: int
    deadline: float | None
    windows: Windows
    is_poison: bool = False
    deadly_after: int | None = None
    pooling: PoolingParams | None = None
    adapter: bytes = b""
    may_be_refused: bool = False
    outputs: dict[bytes, list[tuple[list[int], FinishReason]]] = field(default_factory=dict)
    weights_of: Callable[[], bytes] = bytes

    def expected(self) -> list[tuple[list[int], FinishReason]]:
        """Tokens and reason per choice."""
        weights = self.weights_of()
        if weights not in self.outputs:
            beam = self.params.beam
            if self.pooling is not None:
                outputs = [([], FinishReason.STOP)]
            elif beam is None:
                outputs = [self._sampled(choice) for choice in range(self.params.n)]
            else:
                outputs = self._searched(beam)
            self.outputs[weights] = outputs
        return self.outputs[weights]

    @property
    def root_salt(self) -> bytes:
        """What its cells begin with."""
        return self.salt + self.adapter + self.weights_of()

    @property
    def has_bad_grammar(self) -> bool:
        """Whether no worker can compile what its output must look like."""
        outputs = self.params.structured_outputs
        return outputs is not None and outputs.text.startswith(BAD_GRAMMAR)

    @property
    def stop_ids(self) -> frozenset[int]:
        return frozenset(self.params.stop_token_ids) | frozenset(self.eos_ids)

    def _sampled(self, choice: int) -> tuple[list[int], FinishReason]:
        params = self.params
        tokens, is_stopped = generate(
            self.prompt,
            salt=self.root_salt,
            seed=params.seed or 0,
            choice=choice,
            max_tokens=params.max_tokens or 0,
            min_tokens=params.min_tokens,
            stop_ids=self.stop_ids,
            windows=self.windows,
            grammar=params.structured_outputs.text if params.structured_outputs else None,
        )
        text = ""
        for index, token in enumerate(tokens):
            can_stop = index >= params.min_tokens
            if can_stop and token in self.stop_ids:
                continue
            text += LETTERS[token]
            if can_stop and any(text.endswith(stop) for stop in params.stop):
                return tokens[: index + 1], FinishReason.STOP
        return tokens, FinishReason.STOP if is_stopped else FinishReason.LENGTH

    def _searched(self, beam: Any) -> list[tuple[list[int], FinishReason]]:
        outputs = search(
            self.prompt,
            salt=self.root_salt,
            width=self.params.n,
            max_tokens=self.params.max_tokens or 0,
            length_penalty=beam.length_penalty,
            early_stopping=beam.early_stopping,
            end_ids=self.stop_ids,
            windows=self.windows,
        )
        return [
            (
                list(tokens),
                FinishReason.STOP if tokens[-1] in self.stop_ids else FinishReason.LENGTH,
            )
            for tokens in outputs
        ]


@dataclass
class Client:
    """Reads one session to its end.

    Attributes:
        may_end: Whether the request may end with an error.
    """

    request_compile: Ask
    session: Session
    coverage: Coverage
    may_end: Callable[[Ask, PagewireError], bool]
    tokens: dict[int, list[int]] = field(default_factory=dict)
    ends: dict[int, FinishReason] = field(default_factory=dict)
    error: PagewireError | None = None
    prompt: list[TokenLogprob] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._events: Any = self.session.events()
        self._waiting: Generator[Any, Any, Any] | None = None
        self._blocker: Any = None

    def read(self) -> bool:
        """Take what is ready; True when there will be no more."""
        if self._waiting is not None and not self._blocker.done():
            return False
        while True:
            try:
                if self._waiting is None:
                    self._waiting = self._events.asend(None)
                self._blocker = self._waiting.send(None)
                return False
            except StopIteration as ready:
                self._waiting = None
                if self._take(ready.value):
                    return True
            except PagewireError as error:
                self._waiting = None
                self.refuse(error)
                return True

    def _take(self, event: Any) -> bool:
        if isinstance(event, PromptLogprobs):
            self._take_prompt(event)
        elif isinstance(event, Delta):
            self._take_delta(event)
        elif isinstance(event, Finished):
            self._take_end(event)
        elif isinstance(event, Closed):
            num_choices = self.request_compile.params.n
            self._need(len(self.ends) == num_choices, "one_end_each", "a choice did not end")
            self._check_vector()
            return True
        return False

    def _take_prompt(self, event: PromptLogprobs) -> None:
        """What is told of the prompt comes once, in order, before any token."""
        name = "positions_contiguous"
        self._need(event.first_position == len(self.prompt) + 1, name, "a gap in the prompt")
        self._need(not self.tokens and not self.ends, name, "the prompt comes after a token")
        self.prompt.extend(event.logprobs)

    def _check_prompt(self) -> None:
        """Nothing is shown before all that was asked of the prompt, and that is right."""
        request_compile = self.request_compile
        num_top = request_compile.params.prompt_logprobs
        if num_top is None or self.tokens:
            return
        cells = cells_of(root_cell(request_compile.root_salt), request_compile.prompt)
        truth = [
            (request_compile.prompt[index + 1], value, rank)
            for index, (value, rank) in enumerate(
                scores(cells, request_compile.prompt, request_compile.windows)
            )
        ]
        told = [(entry.token_id, entry.logprob, entry.rank) for entry in self.prompt]
        self._need(told == truth, "prompts_are_scored", f"{told} instead of {truth}")
        widths = {len(entry.top) for entry in self.prompt} | {num_top}
        self._need(widths == {num_top}, "prompts_are_scored", "too few alternatives")
        self.coverage.invariants["prompts_are_scored"] += bool(truth)

    def _check_vector(self) -> None:
        request_compile, pooling = self.request_compile, self.request_compile.pooling
        if pooling is None:
            return
        is_mean = pooling.pooling == "mean"
        truth = embed(
            request_compile.prompt,
            salt=request_compile.root_salt,
            windows=request_compile.windows,
            is_mean=is_mean,
        )
        got = self.session.entry.vector
        self._need(got == truth, "vectors_of_the_model", f"{got!r} instead of {truth!r}")
        self.coverage.invariants["vectors_of_the_model"] += 1

    def _take_delta(self, delta: Delta) -> None:
        self._check_prompt()
        known = self.tokens.setdefault(delta.choice, [])
        name = "positions_contiguous"
        self._need(delta.choice not in self.ends, name, "tokens after an end")
        self._need(delta.first_position == len(known), name, f"{delta.first_position} comes next")
        known.extend(delta.token_ids)
        if delta.first_position:
            self.coverage.invariants[name] += 1
        truth = self.request_compile.expected()[delta.choice][0]
        is_right = known == truth[: len(known)]
        self._need(is_right, "tokens_of_the_model", f"{known} instead of {truth}")
        self.coverage.invariants["tokens_of_the_model"] += 1
        ids = [entry.token_id for entry in delta.logprobs]
        self._need(ids in ([], delta.token_ids), name, "log-probabilities of other tokens")

    def _take_end(self, end: Finished) -> None:
        self._need(end.choice not in self.ends, "one_end_each", "a choice ends twice")
        tokens, reason = self.request_compile.expected()[end.choice]
        got = self.tokens.get(end.choice, [])
        detail = f"choice {end.choice} has {got}, {end.reason} instead of {tokens}, {reason}"
        self._need(got == tokens and end.reason is reason, "tokens_of_the_model", detail)
        self.ends[end.choice] = end.reason
        self.coverage.invariants["one_end_each"] += 1

    def refuse(self, error: PagewireError) -> None:
        """The request failed: there must be a reason for it."""
        self.error = error
        is_allowed = self.may_end(self.request_compile, error)
        self._need(is_allowed, "one_end_each", f"failed without a reason: {error!r}")
        self.coverage.facts[f"failed with {error.code}"] += 1

    def _need(self, is_right: bool, invariant: str, detail: str) -> None:
        if not is_right:
            raise Violation(invariant, detail)
