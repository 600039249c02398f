"""Requests and their sequences (one per choice): what is asked, what is known and what is under
way. Moves states; decides nothing."""

from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pagewire_scheduler.core.block_table import BlockTable
from pagewire_scheduler.core.prefix_cache import NameChain
from pagewire_scheduler.core.state import State, require_move
from pagewire_shared.errors import PagewireError
from pagewire_shared.ids import RequestId
from pagewire_shared.sampling import SamplingParams

if TYPE_CHECKING:
    from pagewire_scheduler.core.waiting_queue import WaitingQueue
    from pagewire_scheduler.core.worker_state import WorkerState


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """Log-probability of one emitted token and of the most likely alternatives."""

    logprob: float
    top_token_ids: tuple[int, ...]
    top_logprobs: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """What a frontend submits, as plain data.

    Attributes:
        emitted: Tokens already emitted per choice; one entry per choice.
        is_finished: Choices that have ended and are not run again.
        eos_token_ids: End-of-sequence ids of the model.
        salt: Tenant and cache salt, canonically encoded; only equal salts share blocks.
        deadline: Instant on the caller's clock, or None.
    """

    request_id: RequestId
    epoch: int
    handle: int
    model: str
    prompt_token_ids: tuple[int, ...]
    emitted: tuple[tuple[int, ...], ...]
    is_finished: tuple[bool, ...]
    sampling: SamplingParams
    eos_token_ids: tuple[int, ...] = ()
    salt: bytes = b""
    priority: int = 0
    deadline: float | None = None


@dataclass(slots=True, eq=False)
class Request:
    """A request in the scheduler.

    Attributes:
        handle: Its name on the frontend's stream; None while the frontend is away.
        arrival: Grows with every request; the order of service within a priority.
        is_admitted: Whether it has been checked against a worker of its model.
    """

    submission: Submission
    frontend_id: bytes
    handle: int | None
    arrival: int
    stop_ids: frozenset[int]
    eos_ids: frozenset[int]
    is_admitted: bool = False
    sequences: list["Sequence"] = field(default_factory=list)

    @property
    def request_id(self) -> RequestId:
        """The key between processes."""
        return self.submission.request_id

    @property
    def is_finished(self) -> bool:
        """Whether every choice has ended."""
        return all(sequence.state.is_finished for sequence in self.sequences)


@dataclass(slots=True, eq=False)
class Sequence:
    """One choice of a request.

    Positions of `tokens`, all ranges half open:

        |-- prompt --|-- emitted and applied --|-- sampled, ids unknown --|
        0       num_prompt              len(tokens)                   num_total
        |------------- planned to be in the KV cache: num_computed -------|

    Attributes:
        tokens: Prompt and every applied token.
        max_len: Tokens at which it ends with LENGTH; set when the model's context is known.
        num_computed: Positions whose keys and values are in the cache or written by a step under
            way.
        num_in_flight: Samples of steps under way that will be applied.
        num_outstanding: Steps under way that name it, void ones included.
        last_step: Step id of the newest plan that names it.
        num_failures: Failed steps it took part in without a known culprit.
        num_cached_tokens: Prompt tokens found in the cache when it first ran.
    """

    request: Request
    choice: int
    tokens: list[int]
    num_prompt: int
    key: tuple[int, int, int]  # priority, arrival, choice: smaller runs first
    state: State = State.WAITING
    max_len: int = 2**31
    chain: NameChain | None = None
    worker: "WorkerState | None" = None
    queue: "WaitingQueue | None" = None
    slot: int | None = None
    table: BlockTable | None = None
    num_computed: int = 0
    num_in_flight: int = 0
    num_outstanding: int = 0
    last_step: int = 0
    num_failures: int = 0
    num_cached_tokens: int | None = None
    logprobs: list[TokenLogprobs | None] = field(default_factory=list)
    stop_token_id: int | None = None
    error: PagewireError | None = None

    def advance(self, target: State) -> None:
        """Move to `target`. Raises IllegalMoveError where the table has no such move."""
        require_move(self.state, target)
        self.state = target

    @property
    def num_emitted(self) -> int:
        """Output tokens known."""
        return len(self.tokens) - self.num_prompt

    @property
    def num_to_compute(self) -> int:
        """Tokens that a plan may still compute; 0 when only outstanding samples are missing."""
        num_total = len(self.tokens) + self.num_in_flight
        return 0 if num_total >= self.max_len else num_total - self.num_computed

    @property
    def has_logprobs(self) -> bool:
        """Whether log-probabilities were asked for."""
        return self.request.submission.sampling.logprobs is not None

    def emitted_from(self, position: int) -> Seq[int]:
        """Return the output tokens from `position`."""
        return self.tokens[self.num_prompt + position :]


def create_request(submission: Submission, frontend_id: bytes, arrival: int) -> Request:
    """Return a request with one WAITING sequence per choice."""
    sampling = submission.sampling
    request = Request(
        submission=submission,
        frontend_id=frontend_id,
        handle=submission.handle,
        arrival=arrival,
        stop_ids=frozenset(sampling.stop_token_ids),
        eos_ids=frozenset() if sampling.ignore_eos else frozenset(submission.eos_token_ids),
    )
    prompt = submission.prompt_token_ids
    for choice, emitted in enumerate(submission.emitted):
        sequence = Sequence(
            request=request,
            choice=choice,
            tokens=[*prompt, *emitted],
            num_prompt=len(prompt),
            key=(submission.priority, arrival, choice),
        )
        if sequence.has_logprobs:
            # Those of an earlier life stay with the frontend, which never asks for them again.
            sequence.logprobs = [None] * len(emitted)
        request.sequences.append(sequence)
    return request
