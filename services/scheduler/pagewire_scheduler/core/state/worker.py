"""One attached worker as the core sees it: pool, slots, queues and outstanding steps. Slots and
blocks are released when no outstanding step uses them."""

import enum
from bisect import bisect_left, insort
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from pagewire_scheduler.core.blocks.block_pool import BlockPool
from pagewire_scheduler.core.blocks.block_table import BlockTable, LeavingBlocks
from pagewire_scheduler.core.blocks.cache_changes import CacheChanges
from pagewire_scheduler.core.blocks.prefix_cache import (
    CachedPrefix,
    NameChain,
    RootKey,
    find_prefix,
)
from pagewire_scheduler.core.data.duty import Duty
from pagewire_scheduler.core.data.model_totals import ModelTotals
from pagewire_scheduler.core.data.settings import CoreSettings
from pagewire_scheduler.core.data.worker_info import WorkerInfo
from pagewire_scheduler.core.state.adapters import WorkerAdapters
from pagewire_scheduler.core.state.draft_offers import DraftOffers
from pagewire_scheduler.core.state.fault_isolation import FaultIsolation
from pagewire_scheduler.core.state.grammars import WorkerGrammars
from pagewire_scheduler.core.state.kv_load import KvLoad
from pagewire_scheduler.core.state.loads import Loads
from pagewire_scheduler.core.state.outstanding_step import OutstandingStep, Release
from pagewire_scheduler.core.state.pairs import PairFacts
from pagewire_scheduler.core.state.request import Key, Request, Sequence
from pagewire_scheduler.core.state.reserve import BlockReservations
from pagewire_scheduler.core.state.slots import WorkerSlots
from pagewire_scheduler.core.state.void_names import VoidNames
from pagewire_scheduler.core.state.waiting_queue import WaitingAside, WaitingQueue
from pagewire_shared.kv.block_hash import root_name


@dataclass(slots=True)
class WorkerCounts:
    """Totals since the worker attached; nothing decides by them.

    Attributes:
        num_computed_tokens: Tokens to compute in its plans.
        num_queried_tokens: Prompt and resumed tokens looked up in the prefix cache.
        num_hit_tokens: Tokens found there.
    """

    num_computed_tokens: int = 0
    num_queried_tokens: int = 0
    num_hit_tokens: int = 0


class Phase(enum.Enum):
    """The progress of a hand-off."""

    QUEUED = "queued"  # the prefill waits for its turn on the source
    COMPUTING = "computing"  # the prefill has begun: blocks may be pulled as they are computed
    HELD = "held"  # all blocks are computed, and kept until the receiver has them
    ENDED = "ended"  # the source keeps nothing for it


_MOVES: Final = {
    Phase.QUEUED: {Phase.COMPUTING, Phase.HELD, Phase.ENDED},
    Phase.COMPUTING: {Phase.HELD, Phase.ENDED},
    Phase.HELD: {Phase.ENDED},
    Phase.ENDED: set[Phase](),
}


@dataclass(slots=True, eq=False, kw_only=True)
class Handoff:
    """Blocks on their way from `source` to `receiver`.

    Attributes:
        sequence: The sequence that waits for the blocks on the receiver.
        num_blocks: Number of leading blocks that the sequence wants.
        deadline: Instant at which the sequence stops waiting.
        prefill: The sequence that computes the blocks on the source; None when all are cached.
        num_cached: Number of leading blocks that the source had already.
        lease: Holds the source's blocks until the receiver has them; None before.
        load: The receiver's order to pull; None before.
        begun_at, computed_at: Instants of the decision, and of the last computed block.
    """

    source: "WorkerState"
    receiver: "WorkerState"
    sequence: Sequence
    num_blocks: int
    deadline: float
    begun_at: float
    num_cached: int = 0
    prefill: Sequence | None = None
    lease: BlockTable | None = None
    load: KvLoad | None = None
    computed_at: float | None = None
    phase: Phase = field(default=Phase.QUEUED)

    def advance(self, target: Phase) -> None:
        """Move to `target`; asserts that the table has the move."""
        assert target in _MOVES[self.phase], f"no move from {self.phase} to {target}"
        self.phase = target

    @property
    def is_pullable(self) -> bool:
        """Whether the source has blocks, or is about to have them."""
        return self.phase in (Phase.COMPUTING, Phase.HELD)


@dataclass(slots=True)
class Handoffs:
    """The hand-offs and probes of one worker; `core.transfers` begins and ends hand-offs.

    Attributes:
        outgoing: Hand-offs whose blocks the worker computes or keeps; a dictionary for its order.
        prefills: The outgoing hand-off of each prefill that runs or waits.
        incoming: The hand-off that each sequence waits for.
        pulls: The hand-off of each load under way from another worker.
        pairs: Measurements of the ways from other workers, by their ids.
        probe_blocks: Blocks that probes compare, by the number of the probe.
    """

    outgoing: dict[Handoff, None] = field(default_factory=dict)
    prefills: dict[Sequence, Handoff] = field(default_factory=dict)
    incoming: dict[Sequence, Handoff] = field(default_factory=dict)
    pulls: dict[KvLoad, Handoff] = field(default_factory=dict)
    pairs: dict[bytes, PairFacts] = field(default_factory=dict)
    probe_blocks: dict[int, BlockTable] = field(default_factory=dict)


class WorkerState:
    """The state of one attached worker.

    Attributes:
        limits: Bounds of messages under way to the worker.
        kind: Equal for workers that differ in load and blocks only.
        duty: The roles that the worker is used for now, and whether it drains.
        slots: The rows of its batch.
        running: RUNNING sequences, ordered by their keys.
        growing: Running sequences with more than one token to compute; a dictionary for its order.
        num_running_of: Running sequences of each tenant that has any.
        waiting: Sequences placed here that wait for slots and blocks.
        aside: Sequences placed here that do not compete for slots.
        is_blocked: Whether waiting sequences lacked slots or blocks in the newest plan that looked
            at them.
        grammars: The grammars that the worker has compiled.
        adapters: The adapters in its adapter slots.
        loads: KV loads under way.
        handoffs: The hand-offs from and to the worker.
        outstanding: Steps under way, oldest first.
        branched: Beam requests whose moves the next plan sends; a dictionary for its order.
        reservations: Reserved blocks.
        fault_isolation: Sequences among which one made a step fail.
        void_names: Names of blocks that the worker has to overwrite.
        drafts: Drafts that the worker offers to verify.
        counts: Totals of its prefix cache.
        totals: Totals of its model.
    """

    def __init__(
        self,
        *,
        info: WorkerInfo,
        waiting: WaitingQueue,
        totals: ModelTotals,
        settings: CoreSettings,
        touched: "dict[WorkerState, None]",
    ) -> None:
        """Args: `touched` are workers whose next plan may differ; a dictionary for its order."""
        self.info, self.limits = info, settings.stream_limits
        self.generation = settings.generation
        self._touched = touched
        self.totals = totals
        self.duty = Duty(info.roles, sleep=info.sleep)
        self.pool = BlockPool(info.num_blocks, len(info.groups))
        self.pool.changes = CacheChanges() if settings.notes_cache_changes else None
        # A step must have room for one token of every running sequence.
        num_slots = min(info.max_num_seqs, self.shared_step_tokens, self.limits.max_slots)
        self.slots = WorkerSlots(num_slots)
        self.running: list[Sequence] = []
        self.growing: dict[Sequence, None] = {}
        self.num_running_of: Counter[str] = Counter()
        self.waiting = waiting
        self.aside = WaitingAside(waiting)
        self.grammars = WorkerGrammars(self.limits)
        self.adapters = WorkerAdapters(info.max_adapters, info.warm_adapters)
        self.loads = Loads(
            is_forced=settings.is_load_forced,
            places_copies=info.places_copies and settings.num_stores > 1,
        )
        self.handoffs = Handoffs()
        self.reservations = BlockReservations()
        self.branched: dict[Request, None] = {}
        self.fault_isolation = FaultIsolation()
        self.is_blocked = False
        self.counts = WorkerCounts()
        self.outstanding: deque[OutstandingStep] = deque()
        self.void_names = VoidNames(info, self.pool)
        self.drafts = DraftOffers()
        self.next_step_id = 1
        self.kind = (
            _root_key(info),
            (info.model.max_model_len, num_slots, info.num_blocks, info.groups.windows),
            info.max_adapters > 0,
        )
        for name, block in info.held:
            self.pool.adopt(block, name)

    def touch(self) -> None:
        """Note a change by which its next plan, or other messages to it, may differ.

        Every change from outside of its own plan must call this, or the worker gets no plan.
        """
        self._touched[self] = None

    @property
    def has_credit(self) -> bool:
        """Whether another plan may be sent."""
        return len(self.outstanding) < (1 if self.drafts else self.info.steps_in_flight)

    @property
    def shared_step_tokens(self) -> int:
        """Most tokens of a step that several sequences share."""
        return min(self.info.shared_step_tokens or self._step_tokens, self._step_tokens)

    @property
    def _step_tokens(self) -> int:
        most = self.limits.max_step_blocks // self.pool.num_groups * self.info.model.block_size
        return min(self.info.max_num_batched_tokens, most)

    @property
    def num_tokens_alone(self) -> int:
        """Tokens beyond those of a shared step for the only running sequence: a long prompt then
        delays no other."""
        if len(self.running) != 1:
            return 0
        num_own = min(self.running[0].num_to_compute, self._step_tokens)
        return max(0, num_own - self.shared_step_tokens)

    def num_free_for(self, sequence: Sequence) -> int:
        """Return how many blocks `sequence` may take; negative when too many are set aside."""
        owner = sequence.request if sequence.is_beam else sequence
        return self.pool.num_free - self.reservations.num_blocks + self.reservations.of(owner)

    @property
    def num_kept_to_go_on(self) -> int:
        """Blocks kept for what runs: each sequence needs one per group before long."""
        return len(self.running) * self.pool.num_groups

    def num_aside(self, sequence: Sequence) -> int:
        """Return how many free blocks are kept for others than `sequence`."""
        return self.pool.num_free - self.num_free_for(sequence) + self.num_kept_to_go_on

    def lacks_blocks(self, sequence: Sequence) -> bool:
        """Return whether `sequence`, which could not start, certainly still lacks blocks."""
        lack = sequence.fairness.lack
        return lack is not None and lack.is_left(self.pool, self.num_aside(sequence))

    @property
    def num_sequences(self) -> int:
        """Sequences placed here."""
        return len(self.running) + self.waiting.sums.num_sequences

    @property
    def num_releasing_blocks(self) -> int:
        """Blocks that come free when steps under way return."""
        return self.leaving_blocks().num_free

    def leaving_blocks(self) -> LeavingBlocks:
        """Return the blocks of tables that are given back when steps under way return."""
        leaving = LeavingBlocks(self.pool)
        for step in self.outstanding:
            for release in step.releases:
                leaving.add(release.table)
        return leaving

    @property
    def num_releasing_slots(self) -> int:
        """Slots that come free when steps under way return."""
        return sum(len(step.releases) for step in self.outstanding)

    def chain_for(self, sequence: Sequence) -> NameChain:
        """Return the sequence's chain of block names under this worker's layout."""
        key, chain = self.kind[0], sequence.placement.chain
        if chain is None or chain.root_key != key:
            submission = sequence.request.submission
            fingerprint, layout, dtype, block_size = key
            root = root_name(
                model_fingerprint=fingerprint,
                layout_fingerprint=layout,
                dtype=dtype,
                salt=submission.salt,
                adapter=submission.adapter,
            )
            chain = sequence.placement.chain = NameChain(
                root,
                block_size,
                key,
                submission.given_names,
                salt=submission.salt,
                adapter=submission.adapter,
            )
        return chain

    def cached_prefix(self, sequence: Sequence) -> CachedPrefix:
        """Return the cached blocks that `sequence` may start with."""
        chain = self.chain_for(sequence)
        return find_prefix(self.pool.cache, chain, sequence.tokens, self.info.groups)

    def enter_running(self, sequence: Sequence) -> int:
        """Give `sequence` the lowest free slot and its place among the running; return the slot."""
        slot = sequence.slot = self.slots.take(sequence)
        insort(self.running, sequence, key=_key)
        self.num_running_of[sequence.request.submission.tenant] += 1
        self.adapters.begin_use(sequence.request.submission.adapter)
        return slot

    def leave_running(self, sequence: Sequence) -> None:
        """Take a running sequence out; its slot and blocks come free when no step names them."""
        index = bisect_left(self.running, sequence.key, key=_key)
        assert self.running[index] is sequence, "a sequence that does not run stops running"
        del self.running[index]
        self.growing.pop(sequence, None)
        self.drafts.drop(sequence)
        tenant = sequence.request.submission.tenant
        self.num_running_of[tenant] -= 1
        if not self.num_running_of[tenant]:
            del self.num_running_of[tenant]
        slot, table = sequence.slot, sequence.table
        assert slot is not None
        assert table is not None
        self.slots.leave(slot, sequence)
        sequence.slot = sequence.table = None
        sequence.num_computed = sequence.fast_path_until = 0
        if sequence.placement.is_guaranteed:
            sequence.placement.is_guaranteed = sequence.placement.is_private = False
            self.reservations.drop(sequence.request if sequence.is_beam else sequence)
        self.slots.reserve(sequence, -sequence.placement.num_reserved_slots)
        release = Release(slot, table, sequence.request.submission.adapter)
        if sequence.num_outstanding:
            self._step(sequence.last_step).releases.append(release)
        else:
            self._release(release)

    def finish_step(self, step: OutstandingStep) -> None:
        """Release what `step`, which has just returned, was the last to name."""
        for release in step.releases:
            self._release(release)
        step.releases = []

    def drop_prefix_cache(self) -> int:
        """Forget the names of all blocks that are VALID; return how many."""
        named = self.pool.forget_names()
        for block in named:
            self.forget_on_worker(block)
        self.loads.forget_names()
        return len(named)

    def forget_on_worker(self, block: int) -> None:
        """Have the name reset on the worker, or it would offer `block` at its next attach."""
        self.void_names.forget(block, self.next_step_id)

    def void_steps(self, steps: Iterable[OutstandingStep]) -> None:
        """Forget the names given by `steps`; they failed or ran on what a failed step left."""
        for step in steps:
            step.is_void = True
            for block in step.named_blocks:
                if self.pool.pending_steps[block] == step.step_id:
                    self.pool.unname(block)

    def _step(self, step_id: int) -> OutstandingStep:
        return next(step for step in self.outstanding if step.step_id == step_id)

    def _release(self, release: Release) -> None:
        release.table.release()
        self.slots.release(release.slot)
        self.adapters.end_use(release.adapter)


def worker_of(sequence: Sequence) -> WorkerState | None:
    """Return the worker that `sequence` was placed on; None while it is on no worker."""
    worker = sequence.placement.worker
    assert worker is None or isinstance(worker, WorkerState)
    return worker


def _root_key(info: WorkerInfo) -> RootKey:
    model = info.model
    return model.model_fingerprint, info.layout_fingerprint, info.dtype, model.block_size


def _key(sequence: Sequence) -> Key:
    return sequence.key
