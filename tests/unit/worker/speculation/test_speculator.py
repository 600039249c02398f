"""The decisions of a speculator on steps that are made up: what it gains, and what it costs."""

import random
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from pagewire_shared.steps.plan import StepPlan
from pagewire_shared.steps.result import StepResult
from pagewire_worker.batch.draft_rows import DraftRows, VerifiedRows
from pagewire_worker.batch.slots import SlotLimits, SlotTable
from pagewire_worker.speculation.chances import Chances, SequenceChance
from pagewire_worker.speculation.proposer import LATER
from pagewire_worker.speculation.speculator import Speculator
from pagewire_worker.speculation.step_costs import StepCosts
from support.cells.worker_driver import request

LENGTH = 4000
BOUND, CHEAP = [(1, 1.0), (2, 1.5), (4, 2.5), (64, 32.0)], [(1, 1.0), (8, 1.2), (64, 4.0)]
COMPUTING = [(1, 1.0), (2, 2.0), (64, 64.0)]


class CountedProposer:
    """Has drafts for every place, and counts how often it is asked."""

    draft_seconds = follow_seconds = 0.0

    def __init__(self, num_drafts):
        self.num_drafts, self.num_asked = num_drafts, 0

    def reading_seconds(self, asked):
        return [0.0] * len(asked)

    def begin(self, slot, start):
        self.slot = slot

    def observe(self, slots, positions): ...

    def prepare(self, asked, most, seconds):
        self.num_asked += len(asked)
        return [min(self.num_drafts, most)] * len(asked)

    def propose(self, asked, counts):
        return [[0] * count for count in counts]


class MadeUpSteps:
    """Steps of one sequence whose drafts are right with a given chance.

    Times follow a curve; a step with drafts waits for its plan.
    """

    def __init__(self, points, chance, num_drafts=4, pause=0.01):
        limits = SlotLimits(
            num_slots=1, num_blocks=1, block_size=16, max_model_len=LENGTH + 64, vocab_size=9
        )
        self.table = SlotTable(limits, torch.device("cpu"))
        self.proposer = CountedProposer(num_drafts)
        self.times = StepCosts(points)
        self.clock = 0.0
        self.speculator = Speculator(
            proposer=self.proposer,
            table=self.table,
            costs=StepCosts(points),
            most=4,
            clock=lambda: self.clock,
        )
        self.dice, self.chance, self.pause = random.Random(1), chance, pause
        self.speculator.follow(StepPlan(1, 1, 1, new_sequences=[request(0)]))
        self.table.num_tokens[0] = 40

    def run(self):
        """Return the time per token, relative to steps without drafts."""
        granted = 0
        while self.table.num_tokens[0] < LENGTH:
            if granted:
                self.clock += self.pause
            self.speculator.follow(StepPlan(1, 1, 2, num_drafts=[granted] if granted else []))
            seconds = self.times.seconds(1 + granted)
            self.clock += seconds
            right = 0
            while right < granted and self.dice.random() < self.chance:
                right += 1
            self.table.num_tokens[0] += 1 + right
            granted = self._take(granted, right, seconds)
        one = self.times.seconds(1)
        return self.clock / (LENGTH - 40) / one

    def _take(self, granted, right, seconds):
        rows = np.arange(1 + granted)
        drafts = DraftRows(np.array([granted]), rows, rows) if granted else None
        step = SimpleNamespace(
            slots=np.zeros(1, np.int64),
            ends=self.table.num_tokens[:1] - 1 - right,
            token_slots=rows,
            token_positions=rows,
            sampling_slots=rows,
            drafts=drafts,
            num_accepted=lambda verified: verified.counts - 1,
        )
        verified = VerifiedRows(rows <= right, np.array([1 + right])) if granted else None
        result = StepResult(
            1, 1, 1, slots=[0], counts=[1 + right], model_time_us=int(seconds * 1e6)
        )
        offered = self.speculator.take(result, step, verified).num_drafts
        return int(offered[0]) if len(offered) else 0


@pytest.mark.parametrize("points", [BOUND, CHEAP, COMPUTING])
def test_wrong_drafts_cost_next_to_nothing(points):
    assert MadeUpSteps(points, chance=0.0).run() < 1.03


@pytest.mark.parametrize(("chance", "most"), [(0.95, 0.35), (0.7, 0.6)])
def test_right_drafts_are_worth_it(chance, most):
    assert MadeUpSteps(CHEAP, chance).run() < most


def test_drafts_as_likely_as_they_are_costly_are_no_loss():
    assert MadeUpSteps(BOUND, chance=0.5).run() < 1.03


def test_nothing_is_searched_where_nothing_can_be_gained():
    steps = MadeUpSteps(COMPUTING, chance=1.0)
    assert steps.run() == pytest.approx(1.0, rel=0.01)
    assert steps.proposer.num_asked == 0


def test_a_sequence_without_drafts_is_searched_ever_more_rarely():
    steps = MadeUpSteps(CHEAP, chance=0.0, num_drafts=0)
    steps.run()
    assert steps.proposer.num_asked < LENGTH / 12


def test_searches_without_drafts_take_a_small_share_of_the_time():
    steps = MadeUpSteps(CHEAP, chance=0.0, num_drafts=0)
    prepare = steps.proposer.prepare

    def slow_prepare(asked, most, seconds):
        steps.clock += 0.5
        return prepare(asked, most, seconds)

    steps.proposer.prepare = slow_prepare
    assert steps.run() < 1.03


class ComputingProposer(CountedProposer):
    """Computes drafts, each in `draft_seconds`, after it has read for some steps."""

    def __init__(self, steps, draft_seconds, num_unread=0):
        super().__init__(4)
        self.steps, self.draft_seconds, self.num_unread = steps, draft_seconds, num_unread

    def prepare(self, asked, most, seconds):
        ready = super().prepare(asked, most, seconds)
        self.num_unread -= 1
        if self.num_unread >= 0:
            self.steps.clock += 0.25 * seconds
            return [LATER] * len(asked)
        return ready

    def propose(self, asked, counts):
        self.steps.clock += self.draft_seconds * max(counts)
        return super().propose(asked, counts)


def computing(points, chance, **fields):
    steps = MadeUpSteps(points, chance)
    steps.speculator._proposer = steps.proposer = ComputingProposer(steps, **fields)
    return steps


@pytest.mark.parametrize("draft_seconds", [0.02, 0.3])
def test_wrong_drafts_of_a_model_cost_next_to_nothing(draft_seconds):
    assert computing(CHEAP, 0.0, draft_seconds=draft_seconds).run() < 1.05


def test_right_drafts_of_a_fast_model_are_worth_it_and_those_of_a_slow_one_no_loss():
    assert computing(CHEAP, 0.9, draft_seconds=0.05).run() < 0.5
    assert computing(CHEAP, 0.9, draft_seconds=2.0).run() < 1.03


def test_reading_where_nothing_can_be_gained_costs_next_to_nothing():
    steps = computing(CHEAP, 0.0, draft_seconds=0.05, num_unread=10**9)
    steps.speculator._slots[0].chance = SequenceChance(Chances(0.01, 0.01))
    assert steps.run() < 1.03


def test_a_model_that_reads_is_asked_at_each_step():
    steps = computing(CHEAP, 0.9, draft_seconds=0.05, num_unread=40)
    steps.run()
    assert steps.table.num_tokens[0] >= LENGTH
    assert steps.speculator.counts.num_tokens > LENGTH / 2
    assert steps.speculator.counts.num_verified < LENGTH - 40


class ReadingProposer(ComputingProposer):
    """A draft model: it reads each token in `token_seconds`, 16 beside a step."""

    def __init__(self, steps, draft_seconds, token_seconds):
        super().__init__(steps, draft_seconds)
        self.token_seconds, self.num_read, self.seconds = token_seconds, 0, 0.0

    def reading_seconds(self, asked):
        return [self.token_seconds * (len(one.tokens) - self.num_read) for one in asked]

    def prepare(self, asked, most, seconds):
        num_unread = len(asked[0].tokens) - self.num_read
        if num_unread <= most + 1:
            return super().prepare(asked, most, seconds)
        self._work(min(16, num_unread - 1))
        return [most if num_unread <= 16 + most else LATER]

    def propose(self, asked, counts):
        self._work(len(asked[0].tokens) - self.num_read)
        self.seconds += self.draft_seconds * max(counts)
        return super().propose(asked, counts)

    def _work(self, num_tokens):
        self.num_read += num_tokens
        self.steps.clock += self.token_seconds * num_tokens
        self.seconds += self.token_seconds * num_tokens


def reading(chance, first_chance, token_seconds):
    steps = MadeUpSteps(CHEAP, chance)
    proposer = ReadingProposer(steps, draft_seconds=0.3, token_seconds=token_seconds)
    steps.speculator._proposer = steps.proposer = proposer
    steps.speculator._slots[0].chance = SequenceChance(Chances(first_chance, first_chance))
    return steps


@pytest.mark.parametrize("token_seconds", [0.02, 0.2])
def test_a_draft_model_that_does_not_pay_computes_ever_less(token_seconds):
    steps = reading(0.2, 0.7, token_seconds)
    assert steps.run() < 1.02
    assert 0 < steps.proposer.seconds < 0.01 * steps.clock


class FollowingProposer(ComputingProposer):
    """Follows steps, each in `follow_seconds`; without the one before it has no drafts."""

    def __init__(self, steps, draft_seconds, follow_seconds):
        super().__init__(steps, draft_seconds)
        self.follow_seconds, self.num_followed, self.has_followed = follow_seconds, 0, False

    def observe(self, slots, positions):
        self.steps.clock += self.follow_seconds
        self.num_followed += 1
        self.has_followed = True

    def prepare(self, asked, most, seconds):
        ready, was_there = super().prepare(asked, most, seconds), self.has_followed
        self.has_followed = False
        return ready if was_there else [LATER] * len(asked)


def following(points, chance, seconds=0.2):
    steps = MadeUpSteps(points, chance)
    proposer = FollowingProposer(steps, draft_seconds=0.05, follow_seconds=seconds)
    steps.speculator._proposer = steps.proposer = proposer
    return steps


def test_a_head_that_does_not_pay_follows_few_steps():
    steps = following(CHEAP, 0.0)
    assert steps.run() < 1.03
    assert 0 < steps.proposer.num_followed < LENGTH / 10


def test_a_head_that_pays_follows_all_steps():
    steps = following(CHEAP, 0.9)
    assert steps.run() < 0.7
    assert steps.proposer.num_followed > LENGTH / 5


@pytest.mark.parametrize("make", [lambda: following(CHEAP, 0.0), lambda: reading(0.0, 0.02, 5e-3)])
def test_what_computes_drafts_is_tried_again_and_found_to_pay(make):
    steps = make()
    steps.speculator._slots[0].chance = SequenceChance(Chances(0.02, 0.02))
    take = steps._take

    def change(*arguments):
        steps.chance = 0.0 if steps.table.num_tokens[0] < LENGTH / 4 else 0.95
        return take(*arguments)

    steps._take = change
    assert steps.run() < 0.85


def test_a_head_follows_nothing_where_nothing_can_be_gained():
    steps = following(COMPUTING, 1.0)
    assert steps.run() == pytest.approx(1.0, rel=0.01)
    assert steps.proposer.num_followed == 0


def test_drafts_that_take_time_are_computed_behind_the_result():
    """The result says how many there will be; they are there before the next step at the latest."""
    steps = computing(CHEAP, 1.0, draft_seconds=0.02)
    for has_time in (True, False):
        began = steps.clock
        granted = steps._take(0, 0, steps.times.seconds(1))
        place = int(steps.table.num_tokens[0])
        assert granted
        assert steps.clock == began
        assert not steps.speculator.drafts(0, place)
        if has_time:
            steps.speculator.propose()
        else:
            steps.speculator.follow(StepPlan(1, 1, 2, num_drafts=[granted]))
        assert len(steps.speculator.drafts(0, place)) == granted
        assert steps.clock == pytest.approx(began + granted * 0.02)
        steps.table.num_tokens[0] += 1


def test_searches_in_vain_take_part_of_what_right_drafts_have_saved():
    counts = []
    for right in (0, 3):
        steps = MadeUpSteps(CHEAP, chance=0.0, num_drafts=0)
        prepare = steps.proposer.prepare

        def slow_prepare(asked, most, seconds, steps=steps, prepare=prepare):
            steps.clock += 0.02
            return prepare(asked, most, seconds)

        steps.proposer.prepare = slow_prepare
        for _ in range(40):
            steps._take(4 if right else 0, right, steps.times.seconds(1))
            steps.table.num_tokens[0] += 16
        counts.append(steps.proposer.num_asked)
    assert counts[1] > 1.5 * counts[0]
