"""Requests and their sequences (one per choice): input, output so far, and progress. A sequence
checks the moves of its state; other modules decide about them."""

from array import array
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from typing import Final, Protocol

from pagewire_scheduler.core.blocks.block_table import BlockTable
from pagewire_scheduler.core.blocks.prefix_cache import NameChain
from pagewire_scheduler.core.data.account import Account
from pagewire_scheduler.core.data.state_machine import State, require_move
from pagewire_scheduler.core.data.submission import Submission
from pagewire_scheduler.core.data.tally import Tally, place_of
from pagewire_scheduler.core.data.timeline import Times
from pagewire_scheduler.core.data.token_logprobs import OutputLogprobs, PromptPiece
from pagewire_scheduler.core.state.beam_search import BeamSearch
from pagewire_scheduler.core.state.kv_load import KvLoad, Look
from pagewire_scheduler.core.state.lack import Lack
from pagewire_shared.errors import PagewireError
from pagewire_shared.identity.ids import RequestId
from pagewire_shared.sampling.structured_outputs import StructuredOutputsParams

LOADS_PER_STAY: Final = 2

Key = tuple[float, int, int]
"""Rank, arrival and choice of a sequence: smaller runs first."""


@dataclass(slots=True, eq=False, kw_only=True)
class Request:
    """A request in the scheduler.

    Attributes:
        handle: Its name on the frontend's stream; None while the frontend is away.
        arrival: Grows with every request.
        rank: Orders requests: the instant of arrival, moved by the priority; see `queue_policy`.
        is_admitted: Whether it has been checked against a worker of its model.
        num_losses: Workers lost while they ran it, since it last got further.
        num_together: How many suspects, itself included, may be tried with it at most.
        num_emitted_at_loss: How far it was then: output tokens of all choices.
        beams: The search under way, for a beam request that runs.
        grammar_key: Names the grammar that its output follows; None for none.
        arrived_at: When it came, on the caller's clock.
        num_prompt_logprobs_reported: Next position whose log-probability the prompt still needs.
        prompt_pieces: Those it has, in order.
        account: Who is charged for it here; None for a probe.
        num_bytes: What it is charged: memory held, and what is expected next.
        bytes_at_most: What that may come to.
        tally: Where its choices are counted; None for nowhere.
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
        """The grammar that its output follows; None for none."""
        return self.submission.sampling.structured_outputs

    @property
    def is_pooling(self) -> bool:
        """Whether it wants a vector and no tokens."""
        return self.submission.pooling is not None

    @property
    def needs_prompt_logprobs(self) -> bool:
        """Whether log-probabilities of its prompt are wanted that it does not have yet."""
        submission = self.submission
        is_wanted = submission.sampling.prompt_logprobs is not None
        return is_wanted and self.num_prompt_logprobs_reported < len(submission.prompt_token_ids)

    @property
    def reads_cache(self) -> bool:
        """Whether it may start behind a cached prefix: not when something is wanted of every
        position."""
        pooling = self.submission.pooling
        return not self.needs_prompt_logprobs and (pooling is None or pooling.pooling == "last")

    @property
    def is_finished(self) -> bool:
        """Whether every choice has ended."""
        return all(sequence.state.is_finished for sequence in self.sequences)


@dataclass(slots=True, eq=False, kw_only=True)
class Sequence:
    """One choice of a request.

    Positions of `tokens`, all ranges half open:

        |-- prompt --|-- emitted and applied --|-- sampled, ids unknown --|
        0       num_prompt              len(tokens)                   num_total
        |------------- planned to be in the KV cache: num_computed -------|

    Attributes:
        tokens: Prompt and every applied token, u32.
        max_len: Tokens at which it ends with LENGTH; set when the model's context is known.
        num_computed: Positions whose keys and values are in the cache or written by a step under
            way.
        num_in_flight: Samples of steps under way that will be applied.
        num_outstanding: Steps under way that name it, void ones included.
        last_step: Step id of the newest plan that names it.
        num_expected: Tokens that were expected to be computed when it was placed.
        num_cached_tokens: Prompt tokens found in the cache when it first ran.
        cached_tokens: (tier, number) of these.
        lack: What it lacked when it last could not start; see `lack`.
        num_loads_left: Loads it may still wait for in this stay on its worker; see `loading`.
        load: The load it waits for.
        load_look: When a load for it was last thought of.
        loaded: The tier of each block that came of those it waited for, by index.
        is_prefill: Whether it computes a prompt for a sequence elsewhere: then it samples nothing,
            and is not a choice of its request.
        probe: The probe that it belongs to, if any; then it never runs.
        handed_off: (first, end) of the tokens that another worker computed for it.
        times: Its instants and durations, for the timeline.
        is_timeline_due: Whether its timeline is reported with its next token.
        followers: Choices that are forked from this one when its prompt is computed; they wait and
            are in no queue.
        leader: The choice that this one follows.
        fast_path_until: Position up to which one token more needs no block, no name and no copy.
        end_ids: Tokens that end it.
        is_live: Whether it has not ended.
        has_logprobs: Whether log-probabilities were asked for.
        logprobs: Those of the output; None when they were not asked for.
        num_counted: Tokens for which its memory is counted, beams aside; see `accounts`.
        is_tail_shared: Whether its last, partly written block may be in other tables, too.
        num_skipped: Later sequences started while there was no room for this one.
        num_preemptions: How often it was preempted.
        num_reserved_slots: Slots kept free for the other beams of its search.
        is_guaranteed: Whether all blocks it may ever need are reserved; never preempted.
        is_private: Whether its blocks are neither found in nor entered into the cache, nor forked.
        is_beam: Whether tokens are appended by the search instead of by its samples.
        candidates: What a beam may go on with: (token, log-probability), the likeliest first.
        is_pooling: Whether its outcome is a vector.
        reports_prompt_logprobs: Whether its worker reports log-probabilities of the prompt.
        vector: The outcome, as little-endian f32.
        is_left_out: Whether its last token is to be computed again; see `left_out`.
        lateness: Grows with each step that leaves it out, and shrinks with each token.
        pauses_until: Steps before this one pass over it where others can go on.
        place: Where it is counted in the tally of its request.
    """

    request: Request
    choice: int
    tokens: "array[int]"
    num_prompt: int
    key: Key
    state: State = State.WAITING
    max_len: int = 2**31
    chain: NameChain | None = None
    worker: "SequenceWorker | None" = None
    queue: "SequenceQueue | None" = None
    slot: int | None = None
    table: BlockTable | None = None
    num_computed: int = 0
    num_in_flight: int = 0
    num_outstanding: int = 0
    last_step: int = 0
    num_expected: int = 0
    num_cached_tokens: int | None = None
    cached_tokens: tuple[tuple[str, int], ...] = ()
    lack: Lack | None = None
    num_loads_left: int = LOADS_PER_STAY
    load: KvLoad | None = None
    load_look: Look | None = None
    loaded: dict[int, str] = field(default_factory=dict)
    is_prefill: bool = False
    probe: "SequenceProbe | None" = None
    handed_off: tuple[int, int] = (0, 0)
    times: Times = field(default_factory=Times)
    is_timeline_due: bool = True
    followers: list["Sequence"] = field(default_factory=list)
    leader: "Sequence | None" = None
    fast_path_until: int = 0
    end_ids: frozenset[int] = frozenset()
    is_live: bool = True
    has_logprobs: bool = False
    num_counted: int = 0
    is_tail_shared: bool = False
    num_skipped: int = 0
    num_preemptions: int = 0
    num_reserved_slots: int = 0
    is_guaranteed: bool = False
    is_private: bool = False
    is_beam: bool = False
    candidates: Seq[tuple[int, float]] | None = None
    is_pooling: bool = False
    reports_prompt_logprobs: bool = False
    vector: bytes | None = None
    is_left_out: bool = False
    lateness: int = 0
    pauses_until: int = 0
    logprobs: OutputLogprobs | None = None
    stop_token_id: int | None = None
    error: PagewireError | None = None
    place: int | None = None

    def advance(self, target: State) -> None:
        """Move to `target`. Raises IllegalMoveError where the table has no such move."""
        require_move(self.state, target)
        self.state = target
        self.is_live = not target.is_finished
        self.recount()

    def recount(self) -> None:
        """Count it, and who follows it, where it stands now."""
        tally = self.request.tally
        if tally is None or not self.is_asked_for:
            return
        # Who waits for another's prompt fares as that one does.
        place = place_of((self.leader or self).state) if self.is_live else None
        if place != self.place:
            if self.place is not None:
                tally[self.place] -= 1
            if place is not None:
                tally[place] += 1
            self.place = place
        for follower in self.followers:
            follower.recount()

    def begin_stay(self, worker: "SequenceWorker") -> None:
        """It is placed on `worker`, and holds nothing there."""
        self.worker, self.load, self.load_look = worker, None, None
        self.num_loads_left, self.loaded = LOADS_PER_STAY, {}

    @property
    def is_asked_for(self) -> bool:
        """Whether it is a choice of a request: no prefill for another worker, and no probe."""
        return not self.is_prefill and self.probe is None

    @property
    def num_emitted(self) -> int:
        """Output tokens known."""
        return len(self.tokens) - self.num_prompt

    @property
    def num_to_hold(self) -> int:
        """Tokens known whose keys and values it will need."""
        return self.num_prompt if self.is_prefill else len(self.tokens)

    @property
    def is_growing(self) -> bool:
        """Whether more than the newest of the tokens it must hold are to be computed."""
        return self.num_computed + 1 < self.num_to_hold

    @property
    def num_to_compute(self) -> int:
        """Tokens that a plan may still compute; 0 when only outstanding samples are missing."""
        if self.is_prefill:
            return self.num_prompt - self.num_computed
        num_total = len(self.tokens) + self.num_in_flight
        if self.is_beam:
            # What comes next is decided when the samples of all beams are there.
            is_awaited = self.num_in_flight or self.candidates is not None
            return 0 if is_awaited else num_total - self.num_computed
        return 0 if num_total >= self.max_len else num_total - self.num_computed

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
        return all(sequence.candidates is not None for sequence in self.live)


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
