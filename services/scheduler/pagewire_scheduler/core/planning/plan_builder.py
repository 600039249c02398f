"""Builds one step plan: adds sequences to it and keeps the budgets that are left."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from pagewire_scheduler.core.blocks.stripes import stripe_of
from pagewire_scheduler.core.data.state_machine import State
from pagewire_scheduler.core.parallel.forks import release_followers
from pagewire_scheduler.core.planning.preemption import preempt, roll_back
from pagewire_scheduler.core.queueing.adapter_gate import push_waiting
from pagewire_scheduler.core.queueing.policy import PreemptionPolicy, QueuePolicy
from pagewire_scheduler.core.state.capacity import MAX_VECTOR_BYTES, num_vector_bytes
from pagewire_scheduler.core.state.request import Sequence
from pagewire_scheduler.core.state.reservations import may_fork, update_reservation
from pagewire_scheduler.core.state.worker import WorkerState
from pagewire_shared.sampling.beam import MAX_BEAM_CANDIDATES
from pagewire_shared.steps.plan import StepPlan

MAX_PROMPT_VALUE_BYTES: Final = 2**21
"""Of the log-probabilities of prompts that one step returns."""
MAX_CANDIDATE_BYTES: Final = 2**20
"""Of the candidates of beams that one step returns. What other slots return is below a mebibyte:
184 bytes at most for each of StreamLimits.max_slots."""


@dataclass(slots=True, kw_only=True)
class PlanBuilder:
    """A plan and the budgets left for it.

    Attributes:
        claimant: A waiting sequence for which room is being made: none behind it is started.
        is_short: An older sequence waits for blocks on their way back: younger ones take none.
        preempted: Sequences that were preempted.
        is_full: A waiting sequence exceeds the bytes left for new ones: none behind it is
            started.
        num_pooled: Sequences that it returns vectors or class scores of.
        num_vector_bytes: Bytes of these.
        num_value_bytes: Bytes of log-probabilities of prompts that it returns.
        num_candidate_bytes: Bytes of candidates of beams that it returns.
        reports_prompt_logprobs: Whether it reports log-probabilities of prompts.
        prefilled: Prefills that it completes.
        found: Prefills whose blocks were all there.
        due_timelines: Sequences whose timelines are reported with the result.
        traced: Sequences of traced requests, and how many tokens of their prompts it computes.
        now: Of the caller's clock.
        is_sent: Whether it has become a step under way.
        shares: Prompt tokens left for each tenant, where there are too few for all; None where
            tenants share no tokens.
    """

    worker: WorkerState
    plan: StepPlan[list[int]]
    policy: QueuePolicy
    preemption: PreemptionPolicy
    is_caching: bool
    num_tokens_left: int
    num_bytes_left: int
    now: float = 0.0
    claimant: Sequence | None = None
    is_short: bool = False
    is_full: bool = False
    sequences: list[Sequence] = field(default_factory=list)
    preempted: list[Sequence] = field(default_factory=list)
    prefilled: list[Sequence] = field(default_factory=list)
    found: list[Sequence] = field(default_factory=list)
    due_timelines: list[Sequence] = field(default_factory=list)
    traced: list[tuple[Sequence, int]] = field(default_factory=list)
    num_pooled: int = 0
    num_vector_bytes: int = 0
    num_value_bytes: int = 0
    num_candidate_bytes: int = 0
    reports_prompt_logprobs: bool = False
    is_sent: bool = False
    shares: dict[str, int] | None = None

    def has_room_for(self, sequence: Sequence) -> bool:
        """Return whether the step may hold `sequence`: its results have to fit in a message."""
        if not self.has_share(sequence):
            return False
        if sequence.is_beam:
            return self.num_candidate_bytes + _candidate_bytes(sequence) <= MAX_CANDIDATE_BYTES
        if sequence.request.needs_prompt_logprobs:
            return self.num_tokens_for(sequence) > 0
        if self.worker.info.model.is_encoder and not self.num_tokens_for(sequence):
            return False
        if not sequence.is_pooling or not self.num_pooled:
            return True
        return self.num_vector_bytes + self._vector_bytes(sequence) <= MAX_VECTOR_BYTES

    def num_tokens_for(self, sequence: Sequence) -> int:
        """Return how many tokens of `sequence` the step may compute at most."""
        num_left = self.num_tokens_left
        if self.worker.info.model.is_encoder:
            # Whole or not at all: every token attends to every other one.
            return sequence.num_to_hold if sequence.num_to_hold <= num_left else 0
        if self.shares is not None and sequence.is_growing:
            num_left = min(num_left, self.shares.get(sequence.request.submission.tenant, 0))
        if sequence.request.needs_prompt_logprobs:
            num_reportable = (MAX_PROMPT_VALUE_BYTES - self.num_value_bytes) // _value_bytes(
                sequence
            )
            num_left = min(num_left, num_reportable)
        return num_left

    def has_share(self, sequence: Sequence) -> bool:
        """Whether something is left of what the step has for its tenant; a token that follows the
        newest one is everybody's right."""
        if self.shares is None or not sequence.is_growing:
            return True
        return self.shares.get(sequence.request.submission.tenant, 0) > 0

    def take_bytes(self, num_bytes: int) -> bool:
        """Take `num_bytes` from the budget of new sequences; return False if it is too small."""
        if num_bytes > self.num_bytes_left:
            return False
        self.num_bytes_left -= num_bytes
        return True

    def add(self, sequence: Sequence, num_tokens: int, fresh_blocks: list[int]) -> None:
        """Schedule `num_tokens` of a running sequence and advance it."""
        plan, slot = self.plan, sequence.slot
        assert slot is not None
        start = sequence.num_computed
        end = start + num_tokens
        is_sampled = end == len(sequence.tokens) + sequence.num_in_flight
        if is_sampled and sequence.times.is_due and not sequence.is_beam:
            self.due_timelines.append(sequence)
        if start < sequence.num_prompt:
            num_of_prompt = min(end, sequence.num_prompt) - start
            self.worker.totals.num_prompt_tokens += num_of_prompt
            if sequence.request.moments is not None:
                self.traced.append((sequence, num_of_prompt))
        if sequence.is_prefill and end == sequence.num_prompt:
            self.prefilled.append(sequence)
        plan.slots.append(slot)
        plan.starts.append(start)
        plan.num_new_tokens.append(num_tokens)
        plan.samples.append(int(is_sampled))
        plan.num_new_blocks.append(len(fresh_blocks) // self.worker.pool.num_groups)
        if fresh_blocks:
            plan.new_block_ids.extend(fresh_blocks)
        if self.is_caching and not sequence.placement.is_private:
            self._name(sequence, end)
        if num_tokens > 1 or not is_sampled:
            self._note_growth(sequence, num_tokens)
        sequence.num_computed = end
        sequence.fairness.is_left_out = False
        sequence.num_in_flight += is_sampled
        if is_sampled and sequence.is_pooling:
            self.num_pooled += 1
            self.num_vector_bytes += self._vector_bytes(sequence)
        if sequence.is_beam and is_sampled:
            self.num_candidate_bytes += _candidate_bytes(sequence)
        if sequence.reports_prompt_logprobs:
            self.num_value_bytes += num_tokens * _value_bytes(sequence)
        self.reports_prompt_logprobs |= (
            sequence.reports_prompt_logprobs and start + 1 < sequence.num_prompt
        )
        sequence.num_outstanding += 1
        sequence.last_step = plan.step_id
        self.num_tokens_left -= num_tokens
        self.sequences.append(sequence)
        if sequence.branch.followers and is_sampled and not sequence.is_beam:
            self._fork_followers(sequence, fresh_blocks)
        self._look_ahead(sequence)

    def _vector_bytes(self, sequence: Sequence) -> int:
        return num_vector_bytes(sequence.request.submission, self.worker.info.model)

    def _note_growth(self, sequence: Sequence, num_tokens: int) -> None:
        """Update whether the sequence grows by more than its newest token."""
        growing = self.worker.growing
        if self.shares is not None and sequence.is_growing:
            self.shares[sequence.request.submission.tenant] -= num_tokens
        if sequence.num_computed + num_tokens + 1 < sequence.num_to_hold:
            growing[sequence] = None
        else:
            growing.pop(sequence, None)

    def _look_ahead(self, sequence: Sequence) -> None:
        """Note how far `sequence` can go on by single tokens that need nothing but arrays."""
        table, placement, chain = sequence.table, sequence.placement, sequence.placement.chain
        is_special = sequence.is_beam or sequence.is_pooling or sequence.is_prefill
        is_special = is_special or bool(sequence.branch.followers)
        # Its timeline is reported with its first token, which may need only one token more.
        is_special = is_special or (sequence.times.is_due and not sequence.num_in_flight)
        if is_special or table is None or table.is_tail_shared or chain is None:
            sequence.fast_path_until = 0
            return
        room = len(table.blocks) * chain.block_size
        if self.is_caching and not placement.is_private:
            # The step that fills a block, or the first after its last id is known, names it.
            room = min(room, (table.num_named + 1) * chain.block_size - 1)
        sequence.fast_path_until = room

    def victims(self, sequence: Sequence) -> Iterator[Sequence]:
        """Yield the running sequences that `sequence` may preempt, the first victim first."""
        return self.preemption.victims(self.worker, sequence)

    def preempt(self, victim: Sequence) -> None:
        """Preempt `victim`."""
        self.preempted.append(victim)
        self.worker.totals.num_preemptions += 1
        preempt(self.worker, victim)

    def displace(self, victim: Sequence) -> None:
        """Let `victim` wait again because its tenant has more than its share.

        That is not held against it as in `preempt`: what its tenant keeps lets it get on.
        """
        self.preempted.append(victim)
        self.worker.totals.num_preemptions += 1
        roll_back(self.worker, victim)

    def _name(self, sequence: Sequence, end: int) -> None:
        """Name the blocks before `end` whose ids are known; sampled ids follow with later steps."""
        chain, table, slot = sequence.placement.chain, sequence.table, sequence.slot
        assert chain is not None
        assert table is not None
        assert slot is not None
        end = min(end, len(sequence.tokens))
        if end < (table.num_named + 1) * chain.block_size:
            return
        tokens, plan = sequence.tokens, self.plan
        for block, name, index in table.name_until(end, chain, tokens, plan.step_id):
            plan.named_blocks.append(block)
            plan.names.append(name)
            plan.named_slots.append(slot)
            if self.worker.loads.places_copies:
                stripe = stripe_of(chain, index, tokens, sequence.num_prompt)
                plan.named_stripes.append(stripe)

    def _fork_followers(self, leader: Sequence, fresh_blocks: list[int]) -> None:
        """Start the other choices from the prompt that this step completes.

        They sample from the same logits and share all blocks. Those without a slot are queued and
        find the prompt in the cache.
        """
        worker = self.worker
        for follower in release_followers(leader):
            follower.begin_stay(worker)
            is_room = worker.slots.num_free > 0 and may_fork(worker, leader)
            # Each copy is sent the blocks that its source grows by.
            if is_room and self.take_bytes(4 * len(fresh_blocks)):
                self._fork(leader, follower, fresh_blocks)
            else:
                push_waiting(worker, follower)

    def _fork(self, leader: Sequence, follower: Sequence, fresh_blocks: list[int]) -> None:
        worker, plan = self.worker, self.plan
        assert leader.slot is not None
        follower.advance(State.RUNNING)
        slot = worker.enter_running(follower)
        follower.fork_from(leader)
        plan.fork_slots.append(slot)
        plan.fork_sources.append(leader.slot)
        plan.fork_choices.append(follower.choice)
        update_reservation(worker, leader)
        # The worker forks before it appends blocks: each copy is sent its source's new ones.
        self.add(follower, 0, fresh_blocks)


def _candidate_bytes(sequence: Sequence) -> int:
    """Return the bytes of the candidates of a beam, at most."""
    group = sequence.request.beams
    return 32 + 8 * (MAX_BEAM_CANDIDATES if group is None else group.search.num_candidates)


def _value_bytes(sequence: Sequence) -> int:
    """Return the bytes that are returned of one token of a prompt, alternatives included."""
    return 12 + 8 * (sequence.request.submission.sampling.prompt_logprobs or 0)
