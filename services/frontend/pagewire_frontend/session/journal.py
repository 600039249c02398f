"""The journal of open requests: the only truth about a stream. A pure core that never sends, waits,
reads a clock or draws a number; its callers act on the outcomes that it returns.

An entry holds prompt, parameters and seed, every emitted token per choice with its position, and
the progress of the prompt's log-probabilities.
"""

import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from pagewire_frontend.adapters.adapter_use import AdapterUse
from pagewire_frontend.session.journal_records import (
    ChoiceJournal,
    HeldRecord,
    PromptJournal,
    ReceiveOutcome,
    Score,
    SubmitRecord,
    TokenLogprob,
)
from pagewire_frontend.session.prompt_blocks import PromptBlocks
from pagewire_shared.identity.ids import RequestId
from pagewire_shared.sampling.params import SamplingParams
from pagewire_shared.sampling.pooling import PoolingParams
from pagewire_shared.weights.version import WeightsVersion

MAX_GAPS = 8
"""Gaps in a row, with nothing new between them, after which a request is given up: a scheduler that
does not send the missing tokens would be asked for ever."""

MAX_FAULTS = 2
"""Schedulers that failed at a request, after which the request is given up: it would end each of
them."""

ENDED = 0xFFFFFFFF
"""Next position of a choice that has ended, in the hello's list of held requests."""


class EntryState(enum.Enum):
    """State of a request between this frontend and a scheduler."""

    WAITING = "waiting"
    """No scheduler has the request: none serves its model now, or it has just arrived."""
    SUBMITTED = "submitted"
    """The request is on an attach stream, under a handle."""
    DETACHED = "detached"
    """The request was submitted, and that stream ended."""
    CLOSED = "closed"
    """All choices ended, or the client went away."""


LEGAL_MOVES: dict[EntryState, frozenset[EntryState]] = {
    EntryState.WAITING: frozenset({EntryState.SUBMITTED, EntryState.CLOSED}),
    # To itself: a gap, answered by a re-submit on the same stream.
    EntryState.SUBMITTED: frozenset({EntryState.SUBMITTED, EntryState.DETACHED, EntryState.CLOSED}),
    EntryState.DETACHED: frozenset({EntryState.SUBMITTED, EntryState.WAITING, EntryState.CLOSED}),
    EntryState.CLOSED: frozenset(),
}


class JournalMoveError(AssertionError):
    """A move that the state table does not have: a fault of the caller, not of a peer."""


# Read for every token: looking a member up in its class costs as much as a call.
_SUBMITTED = EntryState.SUBMITTED
_NEXT = ReceiveOutcome.ACCEPTED, 0
_DUPLICATE = ReceiveOutcome.DUPLICATE, 0
_GAP = ReceiveOutcome.GAP, 0


@dataclass(slots=True, kw_only=True)
class JournalEntry:
    """One open request.

    Attributes:
        request_id: Its only key between processes.
        params: Complete, with seed and max_tokens.
        eos_token_ids: End-of-sequence ids; empty when they are ignored.
        tenant, cache_salt, priority: As the client gave them.
        epoch: Grows by one with each re-submit; -1 before the first.
        handle: Its id on its attach stream, else None.
        prompt_journal: Progress of the log-probabilities of the prompt; None when the client wants
            none.
        pooling: Set when a vector is wanted and no tokens: the one choice has none.
        vector: The outcome, as little-endian f32; None until it has come.
        num_gaps: Gaps since something new has come.
        prompt_blocks: Names of the prompt's blocks; None for the scheduler to compute them.
        num_faults: Schedulers that failed while they worked on it.
        adapter: The adapter that it began with; None for the model alone.
        predicted_token_ids: What the client expects the output to be; None for nothing.
        must_be_held: A scheduler refuses the request unless it has it already.
        weights: What all its output is computed with; None before there is any.
        is_traced: Whether schedulers report the moments of its trace.
    """

    request_id: RequestId
    model: str
    prompt_token_ids: Sequence[int]
    params: SamplingParams
    eos_token_ids: tuple[int, ...] = ()
    tenant: str | None = None
    cache_salt: bytes | None = None
    priority: int = 0
    epoch: int = -1
    handle: int | None = None
    state: EntryState = EntryState.WAITING
    choices: list[ChoiceJournal] = field(default_factory=list)
    prompt_journal: PromptJournal | None = None
    pooling: PoolingParams | None = None
    vector: bytes | None = None
    num_gaps: int = 0
    prompt_blocks: PromptBlocks | None = None
    num_faults: int = 0
    adapter: AdapterUse | None = None
    predicted_token_ids: Sequence[int] | None = None
    must_be_held: bool = False
    weights: WeightsVersion | None = None
    is_traced: bool = False

    def __post_init__(self) -> None:
        assert self.params.seed is not None, "the seed is drawn before the entry is opened"
        assert self.params.max_tokens is not None, "max_tokens is resolved before"
        self.choices = [ChoiceJournal() for _ in range(self.params.n)]
        if self.params.prompt_logprobs is not None:
            self.prompt_journal = PromptJournal(len(self.prompt_token_ids))

    @property
    def num_resubmits(self) -> int:
        """How often the request had to be submitted again."""
        return max(self.epoch, 0)

    @property
    def is_finished(self) -> bool:
        """Whether every choice has ended."""
        # Called for every token: a plain loop is four times as fast as all() over a generator.
        for choice in self.choices:  # noqa: SIM110
            if not choice.is_finished:
                return False
        return True

    @property
    def has_output(self) -> bool:
        """Whether any output has come."""
        return self.vector is not None or any(choice.token_ids for choice in self.choices)

    def note_gap(self) -> bool:
        """Note a gap; return whether there were too many in a row."""
        self.num_gaps += 1
        return self.num_gaps > MAX_GAPS

    def note_fault(self) -> bool:
        """Note that a scheduler failed at this request; return whether it is given up."""
        self.num_faults += 1
        return self.num_faults >= MAX_FAULTS

    @property
    def is_prompt_complete(self) -> bool:
        """Whether all log-probabilities of the prompt have come: no token may be shown before."""
        return self.prompt_journal is None or self.prompt_journal.is_complete

    def submit(self, handle: int) -> SubmitRecord:
        """Mint the next epoch and return the request in full, resuming after the tokens held.

        A prompt whose log-probabilities are complete is submitted without them, so that a cache may
        serve it. Of an incomplete prompt all are asked for again, and duplicates are dropped.

        A beam search starts anew and drops the tokens of the earlier search. Another worker may
        round, and so rank, otherwise, and choices of two searches make no answer.
        """
        self._advance(EntryState.SUBMITTED)
        if self.params.use_beam_search:
            self.choices = [ChoiceJournal() for _ in self.choices]
            self.weights = None
        self.epoch += 1
        self.handle = handle
        return SubmitRecord(
            request_id=self.request_id,
            epoch=self.epoch,
            handle=handle,
            model=self.model,
            prompt_token_ids=self.prompt_token_ids,
            emitted=tuple((tuple(c.token_ids), c.is_finished) for c in self.choices),
            params=self._params_to_submit(),
            eos_token_ids=self.eos_token_ids,
            tenant=self.tenant,
            cache_salt=self.cache_salt,
            priority=self.priority,
            pooling=self.pooling,
            prompt_blocks=self.prompt_blocks,
            adapter=self.adapter,
            predicted_token_ids=self.predicted_token_ids or (),
            # Later on its tokens are in this journal.
            must_be_held=self.must_be_held and self.epoch == 0,
            weights=self.weights,
            is_traced=self.is_traced,
        )

    def detach(self) -> None:
        """Note that the stream of the request ended."""
        self._advance(EntryState.DETACHED)
        self.handle = None

    def held(self, handle: int) -> HeldRecord:
        """Return the entry of a detached request in a hello."""
        assert self.state is EntryState.DETACHED, "only a detached request is listed"
        positions = tuple(ENDED if c.is_finished else c.next_position for c in self.choices)
        return HeldRecord(self.request_id, self.epoch, handle, positions)

    def reattach(self, handle: int) -> None:
        """Go on under a new handle: the scheduler still has the request and resends from the next
        positions, in the same epoch."""
        assert self.state is EntryState.DETACHED, "only a detached request is attached again"
        self._advance(EntryState.SUBMITTED)
        self.handle = handle

    def release(self) -> None:
        """Give up on the scheduler that had the request; any other may take it."""
        self._advance(EntryState.WAITING)

    def close(self) -> None:
        """End the request: its output is complete, or the client went away."""
        self._advance(EntryState.CLOSED)
        self.handle = None

    def begin(self, epoch: int, weights: WeightsVersion) -> None:
        """Note the weights of the output, which comes next."""
        if epoch == self.epoch and self.state is EntryState.SUBMITTED:
            self.weights = weights

    def accept_prompt_logprobs(
        self, epoch: int, first_position: int, scores: Sequence[Score]
    ) -> tuple[ReceiveOutcome, list[TokenLogprob]]:
        """Take exactly the next positions of the prompt; return the outcome and the new part.

        Args:
            first_position: Position in the prompt of the first score, from 1.
            scores: One per position.
        """
        if epoch < self.epoch or self.state is not EntryState.SUBMITTED:
            return ReceiveOutcome.DUPLICATE, []
        if epoch > self.epoch:
            return ReceiveOutcome.GAP, []
        if self.prompt_journal is None:
            return ReceiveOutcome.DUPLICATE, []
        position = self.prompt_journal.next_position
        outcome, new = self.prompt_journal.take(first_position, scores)
        if new:
            self.num_gaps = 0
        token_ids = self.prompt_token_ids[position : position + len(new)]
        named = [
            TokenLogprob(token_id, score.logprob, score.top, score.rank)
            for token_id, score in zip(token_ids, new, strict=True)
        ]
        return outcome, named

    def accept_vector(self, epoch: int, vector: bytes) -> ReceiveOutcome:
        """Take the vector of a request that pools."""
        if epoch < self.epoch or self.state is not EntryState.SUBMITTED:
            return ReceiveOutcome.DUPLICATE
        if epoch > self.epoch:
            return ReceiveOutcome.GAP
        if self.vector is not None:
            return ReceiveOutcome.DUPLICATE
        self.vector = vector
        self.num_gaps = 0
        return ReceiveOutcome.ACCEPTED

    def accept_tokens(
        self,
        epoch: int,
        choice: int,
        first_position: int,
        token_ids: Sequence[int],
        logprobs: Sequence[TokenLogprob] = (),
    ) -> tuple[ReceiveOutcome, int]:
        """Take exactly the next positions of the current epoch into the journal. Return the outcome
        and, for an accepted chunk, how many of its first tokens were known already.

        Args:
            choice: Index of the choice.
            first_position: Position of the first token of the chunk.
            logprobs: One per token, or none at all.
        """
        if epoch < self.epoch or self.state is not _SUBMITTED:
            return _DUPLICATE
        if epoch > self.epoch or choice >= len(self.choices):
            return _GAP
        if self.prompt_journal is not None and not self.prompt_journal.is_complete:
            return _GAP
        journal = self.choices[choice]
        num_known = len(journal.token_ids) - first_position
        if num_known < 0:
            return _GAP
        if journal.is_finished or num_known >= len(token_ids):
            return _DUPLICATE
        journal.token_ids += token_ids[num_known:] if num_known else token_ids
        self.num_gaps = 0
        if logprobs:
            journal.logprobs += logprobs[num_known:]
        return (ReceiveOutcome.ACCEPTED, num_known) if num_known else _NEXT

    def finish(self, epoch: int, choice: int, num_tokens: int) -> ReceiveOutcome:
        """End a choice, which has `num_tokens` tokens in all according to the scheduler."""
        if epoch < self.epoch or self.state is not EntryState.SUBMITTED:
            return ReceiveOutcome.DUPLICATE
        if epoch > self.epoch or choice >= len(self.choices) or not self.is_prompt_complete:
            return ReceiveOutcome.GAP
        journal = self.choices[choice]
        if journal.is_finished:
            return ReceiveOutcome.DUPLICATE
        is_vector_missing = self.pooling is not None and self.vector is None
        if journal.next_position != num_tokens or is_vector_missing:
            return ReceiveOutcome.GAP
        journal.is_finished = True
        self.num_gaps = 0
        return ReceiveOutcome.ACCEPTED

    def cut(self, choice: int, num_tokens: int) -> None:
        """End a choice here, after `num_tokens` of its tokens: a stop string matched."""
        journal = self.choices[choice]
        assert not journal.is_finished, "the choice has ended"
        assert num_tokens <= journal.next_position, "a cut lies within what was emitted"
        del journal.token_ids[num_tokens:]
        del journal.logprobs[num_tokens:]
        journal.is_finished = True

    def _params_to_submit(self) -> SamplingParams:
        if self.is_prompt_complete and self.params.prompt_logprobs is not None:
            return self.params.with_(prompt_logprobs=None)
        return self.params

    def _advance(self, state: EntryState) -> None:
        if state not in LEGAL_MOVES[self.state]:
            raise JournalMoveError(f"{self.state.value} -> {state.value}")
        self.state = state


class Journal:
    """All open requests of this frontend, found by their ids."""

    def __init__(self) -> None:
        self._entries: dict[RequestId, JournalEntry] = {}
        self.num_resumed = 0
        """Requests that were submitted again after a loss, and are closed."""

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[JournalEntry]:
        return iter(self._entries.values())

    def open(self, entry: JournalEntry) -> None:
        """Add a request. Its id is new."""
        assert entry.request_id not in self._entries, "a request id is minted once"
        self._entries[entry.request_id] = entry

    def close(self, entry: JournalEntry) -> None:
        """Forget a request."""
        self.num_resumed += bool(entry.num_resubmits)
        entry.close()
        del self._entries[entry.request_id]
