"""Requests and their sequences (one per choice): input, output so far, and progress. A sequence
checks the moves of its state; other modules decide about them."""

from array import array
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field, replace
from typing import Protocol

from pagewire_scheduler.core.blocks.block_table import BlockTable
from pagewire_scheduler.core.blocks.prefix_cache import NameChain
from pagewire_scheduler.core.data.account import Account
from pagewire_scheduler.core.data.moments import Moments
from pagewire_scheduler.core.data.state_machine import State, require_move
from pagewire_scheduler.core.data.submission import Submission
from pagewire_scheduler.core.data.tally import Tally, place_of
from pagewire_scheduler.core.data.timeline import Times
from pagewire_scheduler.core.data.token_logprobs import PromptPiece
from pagewire_scheduler.core.state.beam_search import BeamSearch
from pagewire_scheduler.core.state.sequence_parts import Fairness, Outcome, Remote
from pagewire_shared.identity.ids import RequestId
from pagewire_shared.sampling.pooling import CACHEABLE
from pagewire_shared.sampling.structured_outputs import StructuredOutputsParams
from pagewire_shared.weights.version import WeightsVersion

Key = tuple[float, int, int]
"""Rank, arrival and choice of a sequence: smaller runs first."""


@dataclass(slots=True, eq=False, kw_only=True)
class Request:
    """A request in the scheduler.

    Attributes:
        handle: The name on the frontend's stream; None while the frontend is away.
        arrival: Grows with every request.
        rank: Orders requests: the instant of arrival, moved by the priority; see `policy`.
        is_admitted: Whether the request has been checked against a worker of its model.
        num_losses: Workers lost while they ran the request, since it last got further.
        num_together: Suspects that may be tried together at most, this request included.
        num_emitted_at_loss: Output tokens of all choices at the last loss.
        beams: The search under way, for a beam request that runs.
        grammar_key: Names the grammar of the output; None without a grammar.
        arrived_at: Instant of arrival, on the caller's clock.
        num_prompt_logprobs_reported: Next position whose log-probability the prompt still needs.
        prompt_pieces: Reported log-probabilities of the prompt, in order.
        account: The account that is charged; None for a probe.
        num_bytes: Charged memory: held, and expected next.
        bytes_at_most: The most memory that the request may hold.
        tally: Counts the choices by place; None for a request that is not counted.
        weights: What all its output is computed with; None before there is any.
        moments: For its trace; None for a request that is not traced.
    """

    submission: Submission
    frontend_id: bytes
    handle: int | None
    arrival: int
    rank: float
    stop_ids: frozenset[int]
    eos_ids: frozenset[int]
    is_admitted: bool = False
    num_losses: int = 0
    num_together: int = 1
    num_emitted_at_loss: int = -1
    sequences: list["Sequence"] = field(default_factory=list)
    beams: "BeamGroup | None" = None
    grammar_key: bytes | None = None
    arrived_at: float = 0.0
    num_prompt_logprobs_reported: int = 1
    prompt_pieces: list[PromptPiece] = field(default_factory=list)
    account: Account | None = None
    num_bytes: int = 0
    bytes_at_most: int = 0
    tally: Tally | None = None
    weights: WeightsVersion | None = None
    moments: Moments | None = None

    @property
    def request_id(self) -> RequestId:
        """The key between processes."""
        return self.submission.request_id

    @property
    def is_beam(self) -> bool:
        """Whether its sequences are the beams of one search."""
        return self.submission.beam_search is not None

    @property
    def grammar(self) -> StructuredOutputsParams | None:
        """The grammar of the output; None without a grammar."""
        return self.submission.sampling.structured_outputs

    @property
    def is_pooling(self) -> bool:
        """Whether the request wants a vector and no tokens."""
        return self.submission.pooling is not None

    @property
    def needs_prompt_logprobs(self) -> bool:
        """Whether log-probabilities of the prompt are wanted and not reported yet."""
        submission = self.submission
        is_wanted = submission.sampling.prompt_logprobs is not None
        return is_wanted and self.num_prompt_logprobs_reported < len(submission.prompt_token_ids)

    @property
    def reads_cache(self) -> bool:
        """Whether it may start behind a cached prefix: not if every position reports something."""
        pooling = self.submission.pooling
        return not self.needs_prompt_logprobs and (pooling is None or pooling.kind in CACHEABLE)

    @property
    def is_finished(self) -> bool:
        """Whether every choice has ended."""
        return all(sequence.state.is_finished for sequence in self.sequences)


@dataclass(slots=True)
class Placement:
    """The worker and the queue of a sequence, and what is kept there for the sequence.

    Attributes:
        queue: The queue that the sequence waits in.
        probe: The probe that the sequence belongs to, if any; then the sequence never runs.
        place: The place in the tally of the request that counts the sequence.
        chain: The names of its blocks under the layout of a worker.
        num_expected: Tokens that were expected to be computed when the sequence was placed.
        num_reserved_slots: Slots kept free for the other beams of the search.
        is_guaranteed: Whether all blocks that it may ever need are reserved; never preempted.
        is_private: Whether its blocks are neither found in nor entered into the cache, nor forked.
    """

    worker: "SequenceWorker | None" = None
    queue: "SequenceQueue | None" = None
    probe: "SequenceProbe | None" = None
    place: int | None = None
    chain: NameChain | None = None
    num_expected: int = 0
    num_reserved_slots: int = 0
    is_guaranteed: bool = False
    is_private: bool = False


@dataclass(slots=True)
class Branching:
    """Other choices of the request that a sequence depends on.

    Attributes:
        leader: The choice that this one follows.
        followers: Choices that are forked from this one when its prompt is computed; they wait and
            are in no queue.
        candidates: The next tokens of a beam: (token, log-probability), the likeliest first.
    """

    leader: "Sequence | None" = None
    followers: list["Sequence"] = field(default_factory=list)
    candidates: Seq[tuple[int, float]] | None = None


@dataclass(slots=True, eq=False, kw_only=True)
class Sequence:
    """One choice of a request.

    Positions of `tokens`, all ranges half open:

        |-- prompt --|-- emitted and applied --|-- sampled, ids unknown --|
        0       num_prompt              len(tokens)                   num_total
        |------------- planned to be in the KV cache: num_computed -------|

    Attributes:
        tokens: Prompt and every applied token, u32.
        max_len: Tokens at which the sequence ends with LENGTH; set when the model's context is
            known.
        end_ids: Tokens that end the sequence.
        is_live: Whether the sequence has not ended.
        is_beam: Whether tokens are appended by the search instead of by samples.
        is_pooling: Whether the outcome is a vector.
        is_prefill: Whether the sequence computes a prompt for a sequence elsewhere: then it samples
            nothing, and is not a choice of its request.
        has_logprobs: Whether log-probabilities were asked for.
        num_computed: Positions whose keys and values are in the cache or written by a step under
            way.
        num_in_flight: Samples of steps under way that will be applied.
        num_outstanding: Steps under way that name the sequence, void ones included.
        last_step: Step id of the newest plan that names the sequence.
        fast_path_until: Position up to which one token more needs no block, no name and no copy.
        lateness: Grows with each step that leaves the sequence out, and shrinks with each token.
        num_counted: Tokens for which memory is counted, beams aside; see `accounts`.
        num_cached_tokens: Prompt tokens found in the cache at the first start; None before.
        reports_prompt_logprobs: Whether the worker reports log-probabilities of the prompt.
        times: Instants and durations, for the timeline.
    """

    request: Request
    choice: int
    tokens: "array[int]"
    num_prompt: int
    key: Key
    state: State = State.WAITING
    is_live: bool = True
    max_len: int = 2**31
    end_ids: frozenset[int] = frozenset()
    is_beam: bool = False
    is_pooling: bool = False
    is_prefill: bool = False
    has_logprobs: bool = False
    slot: int | None = None
    table: BlockTable | None = None
    num_computed: int = 0
    num_in_flight: int = 0
    num_outstanding: int = 0
    last_step: int = 0
    fast_path_until: int = 0
    lateness: int = 0
    num_counted: int = 0
    num_cached_tokens: int | None = None
    reports_prompt_logprobs: bool = False
    placement: Placement = field(default_factory=Placement)
    fairness: Fairness = field(default_factory=Fairness)
    remote: Remote = field(default_factory=Remote)
    branch: Branching = field(default_factory=Branching)
    outcome: Outcome = field(default_factory=Outcome)
    times: Times = field(default_factory=Times)

    def advance(self, target: State) -> None:
        """Move to `target`; a sequence that ends leaves its worker and waits for no sample.

        Raises:
            IllegalMoveError: The table has no such move.
        """
        require_move(self.state, target)
        self.state = target
        if target.is_finished:
            self.is_live = False
            self.placement.worker = self.branch.candidates = None
            self.num_in_flight = 0
        self.recount()

    def recount(self) -> None:
        """Count the sequence and its followers where they stand now."""
        tally, placement = self.request.tally, self.placement
        if tally is None or not self.is_asked_for:
            return
        # A sequence that waits for the prompt of another one fares as that one does.
        place = place_of((self.branch.leader or self).state) if self.is_live else None
        if place != placement.place:
            if placement.place is not None:
                tally[placement.place] -= 1
            if place is not None:
                tally[place] += 1
            placement.place = place
        for follower in self.branch.followers:
            follower.recount()

    def begin_stay(self, worker: "SequenceWorker") -> None:
        """Place the sequence, which holds nothing, on `worker`."""
        self.placement.worker = worker
        self.remote.begin_stay()

    def forget_worker(self) -> None:
        """Forget a worker that is gone, with the slot, the blocks and the steps there."""
        self.placement.worker = self.slot = self.table = None
        self.num_computed = self.num_in_flight = self.num_outstanding = 0

    def fork_from(self, parent: "Sequence") -> None:
        """Share the blocks and the progress of `parent`, and the tokens of a beam."""
        assert parent.table is not None
        assert parent.placement.chain is not None
        self.table, self.placement.chain = parent.table.fork(), parent.placement.chain.fork()
        self.copy_times(parent)
        self.num_computed = parent.num_computed
        if self.is_beam:
            self.tokens = parent.tokens[:]
            self.placement.is_guaranteed = parent.placement.is_guaranteed
            self.placement.is_private = parent.placement.is_private

    def copy_times(self, other: "Sequence") -> None:
        """Take over the times and the cached tokens of `other`."""
        self.times, self.num_cached_tokens = replace(other.times), other.num_cached_tokens

    @property
    def is_asked_for(self) -> bool:
        """Whether this is a choice of a request: no prefill for another worker, and no probe."""
        return not self.is_prefill and self.placement.probe is None

    @property
    def num_emitted(self) -> int:
        """Output tokens known."""
        return len(self.tokens) - self.num_prompt

    @property
    def num_to_hold(self) -> int:
        """Known tokens whose keys and values are needed."""
        return self.num_prompt if self.is_prefill else len(self.tokens)

    @property
    def is_growing(self) -> bool:
        """Whether more than the newest of the tokens to hold are to be computed."""
        return self.num_computed + 1 < self.num_to_hold

    @property
    def num_to_compute(self) -> int:
        """Tokens that a plan may still compute; 0 when only outstanding samples are missing."""
        if self.is_prefill:
            return self.num_prompt - self.num_computed
        num_total = len(self.tokens) + self.num_in_flight
        # The next tokens of beams are decided when the samples of all beams are there.
        if self.is_beam and (self.num_in_flight or self.branch.candidates is not None):
            return 0
        is_complete = num_total >= self.max_len and not self.is_beam
        return 0 if is_complete else num_total - self.num_computed

    def emitted_from(self, position: int) -> Seq[int]:
        """Return the output tokens from `position`."""
        return self.tokens[self.num_prompt + position :]


@dataclass(slots=True)
class BeamMoves:
    """Moves of a beam search that the next plan sends: forks first, then appended tokens.

    Attributes:
        forks: (slot, slot it becomes a copy of, its choice).
        appended: (slot, token).
    """

    forks: list[tuple[int, int, int]] = field(default_factory=list)
    appended: list[tuple[int, int]] = field(default_factory=list)


@dataclass(slots=True)
class BeamGroup:
    """A beam search under way.

    Attributes:
        live: The sequences that carry the running beams, the best first.
        scores: The sum of log-probabilities of each running beam.
        moves: Moves that were not sent to the worker yet.
    """

    search: BeamSearch
    live: list[Sequence]
    scores: list[float]
    moves: BeamMoves | None = None

    @property
    def is_ready(self) -> bool:
        """Whether every beam has its candidates."""
        return all(sequence.branch.candidates is not None for sequence in self.live)


class SequenceWorker(Protocol):
    """The worker of a sequence; `core.state.worker.worker_of` returns its whole state."""

    def touch(self) -> None:
        """Note that the next plan of the worker may differ."""


class SequenceQueue(Protocol):
    """The queue that a sequence waits in."""

    def push(self, sequence: Sequence) -> None:
        """Enter `sequence`."""

    def remove(self, sequence: Sequence) -> None:
        """Take `sequence` out."""

    def drop_follower(self) -> None:
        """Count a choice less that follows a member."""


class SequenceProbe(Protocol):
    """The probe that a sequence belongs to."""

    def end(self, sequence: Sequence, now: float) -> None:
        """End the probe; `sequence` waits no longer."""
