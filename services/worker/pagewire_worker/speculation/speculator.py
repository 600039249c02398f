"""Keeps the drafts of slots: lets them be proposed, offers them to the scheduler, and learns.

The worker proposes and the scheduler grants. A result says how many drafts each slot has; the plan
after it says how many of them may be verified.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from pagewire_shared.kv.arrays import Int64Array
from pagewire_shared.steps.plan import StepPlan
from pagewire_shared.steps.result import StepResult
from pagewire_worker.batch.draft_rows import VerifiedRows
from pagewire_worker.batch.input_batch import PreparedStep
from pagewire_worker.batch.slots import SlotTable
from pagewire_worker.speculation.draft_counts import DraftCounts
from pagewire_worker.speculation.proposer import NOTHING, DraftProposer, Drafts
from pagewire_worker.speculation.step_costs import StepCosts

FIRST_CHANCE: Final = 0.6
"""Chance that a draft is right, while nothing is known of a sequence."""
LEARNING: Final = 0.1
"""Of each verified draft, in the chance of its sequence."""
FORGETTING: Final = 0.01
"""Of each place where drafts were found and none was worth its time: text changes."""
SEARCH_SHARE: Final = 0.02
"""Of the time of steps, that searches without drafts may take."""
MICROSECONDS: Final = 1e-6
MOST_PAUSE: Final = 16
"""Tokens that a sequence without drafts is not searched for, at most."""


@dataclass(frozen=True, slots=True)
class _Found:
    position: int
    drafts: Drafts


class Speculator:
    """The drafts of one replica.

    Args:
        proposer: Guesses tokens.
        table: The slots; their tokens lie on the host.
        costs: Says how many drafts are worth their time; None to offer all.
        most: Drafts per slot and step, at most.
        clock: Seconds, as time.perf_counter.
    """

    def __init__(
        self,
        *,
        proposer: DraftProposer,
        table: SlotTable,
        costs: StepCosts | None,
        most: int,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        num_slots = table.limits.num_slots
        self.counts = DraftCounts(most)
        self._proposer = proposer
        self._table = table
        self._costs = costs
        self._most = most
        self._clock = clock
        self._taken_at = clock()
        self._is_eligible = np.zeros(num_slots, dtype=bool)
        self._chances = np.full(num_slots, FIRST_CHANCE)
        self._pauses = np.ones(num_slots, dtype=np.int64)
        self._next_search = np.zeros(num_slots, dtype=np.int64)
        self._found: dict[int, _Found] = {}
        # While drafts are offered, the scheduler plans no step ahead.
        self._is_held = False
        self._debt_seconds = 0.0

    def drafts(self, slot: int, position: int) -> Drafts:
        """Return the drafts for the places of `slot` from `position` on."""
        found = self._found.get(slot)
        return NOTHING if found is None or found.position != position else found.drafts

    def follow(self, plan: StepPlan) -> None:
        """Follow the slots that get other sequences, just before the step is run."""
        if self._costs is not None and np.any(plan.num_drafts):
            self._costs.note_pause(self._clock() - self._taken_at)
        for request in plan.new_sequences:
            is_plain = not request.is_beam and request.pooling is None
            self._begin(request.slot, is_eligible=is_plain and request.grammar_id is None)
        for slot, source in zip(plan.fork_slots, plan.fork_sources, strict=True):
            self._begin(int(slot), is_eligible=bool(self._is_eligible[int(source)]))

    def clear(self) -> None:
        """Forget all slots."""
        self._is_eligible[:] = False
        self._is_held = False
        self._found.clear()

    def take(
        self, result: StepResult, step: PreparedStep, verified: VerifiedRows | None
    ) -> StepResult:
        """Learn from a step that is committed; return its result with the drafts of its slots.

        `verified` are the rows whose samples count; None if the step had no drafts.
        """
        num_rows = len(step.token_slots)
        if self._costs is not None and num_rows == len(step.sampling_slots):
            self._costs.note_step(num_rows, result.model_time_us * MICROSECONDS)
        if verified is not None:
            self._learn(step, verified)
        slots, counts = np.asarray(result.slots, np.int64), np.asarray(result.counts, np.int64)
        is_open = (counts > 0) & self._is_eligible[slots]
        if len(result.failed_slots):
            is_open &= ~np.isin(slots, np.asarray(result.failed_slots, dtype=np.int64))
        offered = self._offer_in_time(
            slots[is_open], len(step.slots), result.model_time_us * MICROSECONDS
        )
        self._is_held = bool(offered.any())
        self._taken_at = self._clock()
        if not offered.any():
            return result
        num_drafts = np.zeros(len(slots), dtype=np.uint32)
        num_drafts[is_open] = offered
        return replace(result, num_drafts=num_drafts)

    def _begin(self, slot: int, *, is_eligible: bool) -> None:
        self._is_eligible[slot] = is_eligible
        self._chances[slot] = FIRST_CHANCE
        self._pauses[slot], self._next_search[slot] = 1, 0
        self._found.pop(slot, None)

    def _learn(self, step: PreparedStep, verified: VerifiedRows) -> None:
        assert step.drafts is not None
        accepted = step.num_accepted(verified)
        for index in np.flatnonzero(step.drafts.num_drafts).tolist():
            slot, right = int(step.slots[index]), int(accepted[index])
            num_drafts = int(step.drafts.num_drafts[index])
            self.counts.add(num_drafts, right)
            chance = 1.0 - (1.0 - self._chances[slot]) * (1.0 - LEARNING) ** right
            self._chances[slot] = chance * (1.0 - LEARNING) if right < num_drafts else chance

    def _offer_in_time(self, slots: Int64Array, num_rows: int, seconds: float) -> Int64Array:
        """Offer drafts as `_offer`, unless what found none has taken too much time.

        Args:
            seconds: Time of the step.
        """
        self._debt_seconds = max(0.0, self._debt_seconds - SEARCH_SHARE * seconds)
        if self._costs is not None and self._debt_seconds > 0:
            return np.zeros(len(slots), dtype=np.int64)
        began = self._clock()
        offered = self._offer(slots, num_rows)
        if not offered.any():
            self._debt_seconds += self._clock() - began
        return offered

    def _offer(self, slots: Int64Array, num_rows: int) -> Int64Array:
        """Propose drafts for `slots` [n] and return how many to verify of each, [n]."""
        none = np.zeros(len(slots), dtype=np.int64)
        costs = self._costs
        if len(slots) == 0 or (costs is not None and not costs.may_gain(num_rows, self._most)):
            return none
        lengths = np.array([len(self._search(slot)) for slot in slots.tolist()], dtype=np.int64)
        if costs is None or not lengths.any():
            return lengths
        chances = self._chances[slots]
        offered = costs.choose(num_rows, chances, lengths, is_held=self._is_held)
        passed = slots[(lengths > 0) & (offered == 0)]
        self._chances[passed] += FORGETTING * (FIRST_CHANCE - self._chances[passed])
        return offered

    def _search(self, slot: int) -> Drafts:
        """Find drafts for the places behind the tokens of `slot`, and keep them."""
        num_tokens = int(self._table.num_tokens[slot])
        self._found.pop(slot, None)
        if num_tokens < self._next_search[slot]:
            return NOTHING
        tokens = self._tokens(slot, num_tokens)
        drafts = self._proposer.propose(tokens, self._most)
        if len(drafts):
            self._pauses[slot] = 1
            self._found[slot] = _Found(num_tokens, drafts)
        else:
            self._next_search[slot] = num_tokens + self._pauses[slot]
            self._pauses[slot] = min(2 * self._pauses[slot], MOST_PAUSE)
        return drafts

    def _tokens(self, slot: int, num_tokens: int) -> npt.NDArray[np.int32]:
        tokens = self._table.host_tokens
        assert tokens is not None, "drafts are proposed from tokens on the host"
        return tokens[slot, :num_tokens]
