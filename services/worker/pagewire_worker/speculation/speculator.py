"""Keeps the drafts of slots: lets them be proposed, offers them to the scheduler, and learns.

The worker proposes and the scheduler grants. A result says how many drafts each slot has; the plan
after it says how many of them may be verified. Drafts that take time are computed in between.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt

from pagewire_shared.steps.plan import StepPlan
from pagewire_shared.steps.result import StepResult
from pagewire_worker.batch.draft_rows import VerifiedRows
from pagewire_worker.batch.input_batch import PreparedStep
from pagewire_worker.batch.slots import SlotTable
from pagewire_worker.speculation.chances import FIRST_CHANCES, Chances, SequenceChance
from pagewire_worker.speculation.draft_counts import DraftCounts
from pagewire_worker.speculation.drafted_slot import DraftedSlot, start_of
from pagewire_worker.speculation.prediction import PredictionFinder
from pagewire_worker.speculation.proposer import (
    LATER,
    NOTHING,
    DraftProposer,
    DraftRequest,
    Drafts,
    SequenceStart,
)
from pagewire_worker.speculation.step_costs import StepCosts
from pagewire_worker.speculation.trials import Rests, Trials

SEARCH_SHARE: Final = 0.005
"""Of the time of steps, that searches for drafts that are not verified may take."""
SAVED_SHARE: Final = 0.1
"""Of the time that right drafts have saved, that such searches may take in addition."""
MOST_CREDIT_SECONDS: Final = 0.02
"""That searches may take at most, because of steps and drafts before them."""
TRIAL_DRAFTS: Final = 2
"""Of a sequence in a trial."""
FOLLOWED_STEPS: Final = 16
"""That a proposer follows before a trial, if it has not followed those before them."""
MOST_PAUSE: Final = 16
"""Tokens that a sequence without drafts is not searched for, at most."""
MICROSECONDS: Final = 1e-6
NOT_ASKED: Final[tuple[Sequence[DraftRequest], Sequence[int]]] = ((), ())


class Speculator:
    """The drafts of one replica.

    Args:
        proposer: Guesses tokens.
        table: The slots; their tokens lie on the host.
        costs: Says how many drafts are worth their time; None to offer all.
        most: Drafts per slot and step, at most.
        predictions: Knows which drafts were predicted by clients; None if none are.
        clock: Seconds, as time.perf_counter.
    """

    def __init__(
        self,
        *,
        proposer: DraftProposer,
        table: SlotTable,
        costs: StepCosts | None,
        most: int,
        predictions: PredictionFinder | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.counts = DraftCounts(most)
        self._proposer = proposer
        self._table = table
        self._costs = costs
        self._most = most
        self._predictions = predictions
        self._clock = clock
        self._slots: dict[int, DraftedSlot] = {}
        self._prior = FIRST_CHANCES
        # Whether drafts were offered with the last result and with the one before: if so, the
        # scheduler has planned no step ahead.
        self._is_held = self._was_held = False
        self._taken_at: float | None = None
        self._debt_seconds = 0.0
        self._trials, self._rests = Trials(), Rests()
        # Drafts that were offered and are not computed yet; whether a plan came before they were.
        self._awaited: tuple[Sequence[DraftRequest], Sequence[int]] = NOT_ASKED
        self._was_hurried = False
        self._is_hurried: Callable[[], bool] = _never
        # Of the proposer while the scheduler waited for the result, and whether it computes for a
        # trial only.
        self._proposing_seconds = 0.0
        self._is_trial = False
        # Whether drafts were expected to pay, and steps that were followed since one was left out.
        self._is_paying = True
        self._num_followed = 0

    def drafts(self, slot: int, position: int) -> Drafts:
        """Return the drafts for the places of `slot` from `position` on."""
        held = self._slots.get(slot)
        return NOTHING if held is None or held.position != position else held.drafts

    def follow(self, plan: StepPlan) -> None:
        """Follow the slots that get other sequences, just before the step is run."""
        self.propose()
        for freed in plan.freed_slots:
            if self._slots.pop(int(freed), None) is not None:
                self._proposer.release(int(freed))
        for request in plan.new_sequences:
            self._begin(request.slot, start_of(request))
        if len(plan.fork_slots):
            forks = zip(plan.fork_slots, plan.fork_sources, strict=True)
            sources = [(int(slot), self._slots.get(int(source))) for slot, source in forks]
            for slot, source in sources:
                self._begin(slot, None if source is None else source.start)

    def propose(self) -> None:
        """Compute the drafts that were offered with the last result, if they are not there yet.

        Meanwhile the result is on its way to the scheduler, and the plan on its way back.
        """
        asked, counts = self._awaited
        if asked:
            self._awaited = NOT_ASKED
            for one, drafts in zip(asked, self._propose(asked, counts), strict=True):
                self._slots[one.slot].drafts = drafts
            self._was_hurried = self._is_hurried()

    def hurry_when(self, is_hurried: Callable[[], bool]) -> None:
        """Know by `is_hurried` whether the next plan is there."""
        self._is_hurried = is_hurried

    def clear(self) -> None:
        """Forget all slots."""
        self._slots.clear()
        self._awaited = NOT_ASKED
        self._is_held = self._was_held = False
        self._proposer.clear()

    def take(
        self, result: StepResult, step: PreparedStep, verified: VerifiedRows | None
    ) -> StepResult:
        """Learn from a step that is committed; return its result with the drafts of its slots.

        `verified` are the rows whose samples count; None if the step had no drafts.
        """
        began = self._clock()
        if verified is not None:
            predicted = self._learn(step, verified)
            if predicted:
                result = replace(result, num_predicted=_by_slot(result, predicted))
        self._note_time(began, result, step)
        self._proposing_seconds, self._was_hurried = 0.0, False
        self._follow(step)
        offered = self._offer_in_time(began, result, len(step.slots))
        self._was_held, self._is_held = self._is_held, bool(offered)
        return replace(result, num_drafts=_by_slot(result, offered)) if offered else result

    def _begin(self, slot: int, start: SequenceStart | None) -> None:
        """Let `slot` begin; without a start it gets no drafts."""
        self._slots.pop(slot, None)
        if start is not None:
            prior = FIRST_CHANCES if len(start.predicted_token_ids) else self._prior
            self._slots[slot] = DraftedSlot(start, SequenceChance(prior), learnt=start.num_tokens)
            self._proposer.begin(slot, start)
            self._rests.end()

    def _learn(self, step: PreparedStep, verified: VerifiedRows) -> dict[int, int]:
        """Learn from verified drafts; return how many of each slot were predicted by a client."""
        assert step.drafts is not None
        predicted = {}
        accepted = step.num_accepted(verified).tolist()
        if self._costs is not None:
            num_seqs = len(step.slots)
            saved = sum(accepted) * self._costs.seconds(num_seqs) / num_seqs
            self._debt_seconds -= SAVED_SHARE * saved
        for index, num_drafts in enumerate(step.drafts.num_drafts.tolist()):
            if num_drafts:
                self.counts.add(num_drafts, accepted[index])
                slot, end = int(step.slots[index]), int(step.ends[index])
                held = self._slots.get(slot)
                if held is not None:
                    num_right = accepted[index]
                    self._prior = held.chance.note(
                        num_drafts, num_right, self._prior, num_since=max(0, end - held.learnt)
                    )
                    held.learnt = end + num_right + 1
                drafts = self.drafts(slot, end)[:num_drafts]
                finder = self._predictions
                if finder is not None and finder.has_found(slot, end, drafts):
                    predicted[slot] = num_drafts
        return predicted

    def _note_time(self, now: float, result: StepResult, step: PreparedStep) -> None:
        costs, before, self._taken_at = self._costs, self._taken_at, now
        if costs is None:
            return
        seconds = result.model_time_us * MICROSECONDS
        self._debt_seconds = max(-MOST_CREDIT_SECONDS, self._debt_seconds - SEARCH_SHARE * seconds)
        self._trials.save(seconds)
        num_rows = len(step.token_slots)
        if num_rows != len(step.sampling_slots):
            self._taken_at = None  # a step with prompts says nothing of the next one
            return
        costs.note_step(num_rows, seconds)
        has_drafts = step.drafts is not None
        if before is not None and (has_drafts or not (self._is_held or self._was_held)):
            beside = now - before - seconds - self._proposing_seconds
            # A plan that came while drafts were computed would have come no later without them.
            is_most = has_drafts and self._was_hurried
            costs.note_beside(beside, has_drafts=has_drafts, is_most=is_most)

    def _follow(self, step: PreparedStep) -> None:
        """Let the proposer follow a step, if its drafts pay or time for a trial is saved up."""
        if self._may_follow(len(step.slots)):
            began = self._clock()
            self._proposer.observe(step.token_slots, step.token_positions)
            self._proposing_seconds = self._clock() - began
            self._num_followed += 1
            if not self._is_paying:
                self._trials.spend(self._proposing_seconds)
        else:
            self._num_followed = 0

    def _may_follow(self, num_rows: int) -> bool:
        """Return whether to follow a step: in a trial, until what was saved up is spent."""
        costs, seconds = self._costs, self._proposer.follow_seconds
        if costs is None or seconds == 0.0:
            return True
        if not costs.may_gain(num_rows, self._most):
            return False
        if self._is_paying:
            return True
        # A trial that could not be ended would be read for in vain.
        price = costs.price(num_rows, TRIAL_DRAFTS * num_rows)
        price += TRIAL_DRAFTS * self._proposer.draft_seconds
        may_begin = self._trials.may_spend(FOLLOWED_STEPS * seconds + price)
        return self._trials.saved >= 0.0 if self._num_followed else may_begin

    def _offer_in_time(self, began: float, result: StepResult, num_rows: int) -> dict[int, int]:
        """Offer drafts as `_offer`, unless what found none has taken too much time."""
        costs = self._costs
        if not self._slots or self._rests.take():
            return {}
        if costs is not None and (
            self._debt_seconds > 0.0 or not costs.may_gain(num_rows, self._most)
        ):
            return {}
        offered = self._offer(result, num_rows)
        if not offered and self._proposer.draft_seconds == 0.0:
            self._debt_seconds += self._clock() - began
        return offered

    def _offer(self, result: StepResult, num_rows: int) -> dict[int, int]:
        """Return how many drafts of each slot to verify, by slot; slots without any are not in."""
        asked = self._worth_preparing(num_rows, self._asked(result))
        if not asked:
            return {}
        lengths = self._prepare(asked, result.model_time_us * MICROSECONDS)
        if not any(lengths):
            return {}
        counts = lengths if self._costs is None else self._choose(num_rows, asked, lengths)
        chosen = [(one, count) for one, count in zip(asked, counts, strict=True) if count]
        if not chosen:
            return {}
        for one, _ in chosen:
            self._slots[one.slot].position = len(one.tokens)
        offered = {one.slot: count for one, count in chosen}
        self._awaited = [one for one, _ in chosen], list(offered.values())
        if self._proposer.draft_seconds == 0.0:
            self.propose()
            found = ((slot, len(self._slots[slot].drafts)) for slot in offered)
            offered = {slot: length for slot, length in found if length}
        return offered

    def _asked(self, result: StepResult) -> list[DraftRequest]:
        """Return the sequences of a result that it is time to search drafts for."""
        host_tokens = self._table.host_tokens
        assert host_tokens is not None, "drafts are proposed from tokens on the host"
        failed = np.asarray(result.failed_slots).tolist()
        asked = []
        counts = np.asarray(result.counts).tolist()
        for slot, count in zip(np.asarray(result.slots).tolist(), counts, strict=True):
            held = self._slots.get(slot)
            if held is None or count == 0 or slot in failed:
                continue
            held.drafts = NOTHING
            num_tokens = int(self._table.num_tokens[slot])
            if num_tokens >= held.next_search:
                asked.append(DraftRequest(slot, host_tokens[slot, :num_tokens]))
        return asked

    def _worth_preparing(
        self, num_rows: int, asked: Sequence[DraftRequest]
    ) -> Sequence[DraftRequest]:
        """Return those of `asked` whose drafts may be worth their time, or a trial."""
        costs, draft_seconds = self._costs, self._proposer.draft_seconds
        self._is_trial = False
        if not asked or costs is None or draft_seconds == 0.0:
            return asked
        self._is_paying = any(self._worth(num_rows, asked, [self._most] * len(asked)))
        self._rests.note(is_paying=self._is_paying)
        if self._is_paying:
            self._trials.note_paying()
            return asked
        self._is_trial = True
        if self._proposer.follow_seconds and self._num_followed < FOLLOWED_STEPS:
            return []
        most = min(self._most, TRIAL_DRAFTS)
        rows = costs.seconds(num_rows + most) - costs.seconds(num_rows)
        reading = self._proposer.reading_seconds(asked)
        shared = costs.price(num_rows, 0) + most * draft_seconds
        tried = self._trials.affordable(shared, [rows + seconds for seconds in reading])
        return [asked[index] for index in tried]

    def _prepare(self, asked: Sequence[DraftRequest], seconds: float) -> list[int]:
        """Return how many drafts each of `asked` could have, [n], after a step of `seconds`."""
        began = self._clock()
        lengths = self._proposer.prepare(asked, self._most, seconds)
        seconds = self._clock() - began
        self._proposing_seconds += seconds
        if self._is_trial:
            self._trials.spend(seconds)
        self._note_searches(asked, lengths)
        return [max(0, length) for length in lengths]

    def _propose(self, asked: Sequence[DraftRequest], counts: Sequence[int]) -> list[Drafts]:
        began = self._clock()
        drafts = self._proposer.propose(asked, counts)
        seconds = self._clock() - began
        if self._proposer.draft_seconds == 0.0:
            self._proposing_seconds += seconds
        if self._is_trial:
            self._trials.spend(seconds)
            self._trials.note_trial()
        return drafts

    def _note_searches(self, asked: Sequence[DraftRequest], lengths: Sequence[int]) -> None:
        for one, length in zip(asked, lengths, strict=True):
            held = self._slots[one.slot]
            if length > 0:
                held.pause = 1
            elif length != LATER:
                held.next_search = len(one.tokens) + held.pause
                held.pause = min(2 * held.pause, MOST_PAUSE)

    def _choose(
        self, num_rows: int, asked: Sequence[DraftRequest], lengths: Sequence[int]
    ) -> Sequence[int]:
        """Return how many drafts of each of `asked` are worth their time, or a trial, [n]."""
        counts = self._worth(num_rows, asked, lengths)
        if any(counts):
            return counts
        assert self._costs is not None
        trial = [min(length, TRIAL_DRAFTS) for length in lengths]
        price, draft_seconds = self._costs.price(num_rows, sum(trial)), self._proposer.draft_seconds
        # Before a trial that was chosen, all of its price was there; reading has taken its part.
        if not self._is_trial and not self._trials.may_spend(price + max(trial) * draft_seconds):
            return counts
        self._trials.spend(price)
        self._is_trial = draft_seconds > 0.0
        return trial

    def _worth(
        self, num_rows: int, asked: Sequence[DraftRequest], lengths: Sequence[int]
    ) -> Sequence[int]:
        """Return how many drafts of each of `asked` are worth their time, [n]."""
        assert self._costs is not None
        return self._costs.choose(
            num_rows,
            [self._chances(one) for one in asked],
            lengths,
            is_held=self._is_held,
            draft_seconds=self._proposer.draft_seconds,
            follow_seconds=self._proposer.follow_seconds,
        )

    def _chances(self, one: DraftRequest) -> Chances:
        held = self._slots[one.slot]
        return held.chance.value(max(0, len(one.tokens) - held.learnt))


def _by_slot(result: StepResult, counts: Mapping[int, int]) -> npt.NDArray[np.uint32]:
    """Return the counts per slot of `result`; slots without any have 0."""
    slots = np.asarray(result.slots).tolist()
    return np.array([counts.get(slot, 0) for slot in slots], dtype=np.uint32)


def _never() -> bool:
    return False
