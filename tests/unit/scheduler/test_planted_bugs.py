"""The simulation must notice bugs: each one planted here is a way to serve wrong tokens or to
leak."""

import random
from collections.abc import Callable

import pytest
from unit.scheduler.simulation import Simulation

from pagewire_scheduler.core import planner, preemption, worker_state
from pagewire_scheduler.core.block_pool import BlockPool
from pagewire_scheduler.core.block_table import BlockTable
from pagewire_scheduler.core.request import Sequence
from pagewire_scheduler.core.state import State
from pagewire_scheduler.core.worker_state import Release, WorkerState

Plant = Callable[[pytest.MonkeyPatch], None]
NUM_SEEDS = 25


def share_without_counting(patch: pytest.MonkeyPatch) -> None:
    def share(self: BlockTable, blocks: list[int]) -> None:
        self.blocks = list(blocks)
        self.num_named = len(blocks)

    patch.setattr(BlockTable, "share", share)


def release_while_a_step_is_under_way(patch: pytest.MonkeyPatch) -> None:
    original = WorkerState.leave_running

    def leave_running(self: WorkerState, sequence: Sequence) -> None:
        num_outstanding, sequence.num_outstanding = sequence.num_outstanding, 0
        original(self, sequence)
        sequence.num_outstanding = num_outstanding

    patch.setattr(WorkerState, "leave_running", leave_running)


def forget_the_salt(patch: pytest.MonkeyPatch) -> None:
    original = worker_state.root_name
    patch.setattr(worker_state, "root_name", lambda *, salt, **fields: original(salt=b"", **fields))


def believe_failed_steps(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(WorkerState, "void_steps", lambda self, steps: None)


def requeue_before_the_last_token_is_applied(patch: pytest.MonkeyPatch) -> None:
    def preempt(worker: WorkerState, victim: Sequence) -> None:
        worker.leave_running(victim)
        victim.advance(State.PREEMPTED)
        worker.waiting.push(victim)

    patch.setattr(planner, "preempt", preempt)


def hit_the_whole_prompt(patch: pytest.MonkeyPatch) -> None:
    original = planner.find_prefix
    patch.setattr(
        planner, "find_prefix", lambda cache, chain, tokens: original(cache, chain, [*tokens, 0])
    )


def keep_the_name_of_a_block_given_out(patch: pytest.MonkeyPatch) -> None:
    def allocate(self: BlockPool) -> int:
        block = self._free.pop_head()
        self.ref_counts[block] = 1
        return block

    patch.setattr(BlockPool, "allocate", allocate)


def leak_a_table(patch: pytest.MonkeyPatch) -> None:
    def release(self: WorkerState, release: Release) -> None:
        self.free_slots.append(release.slot)
        self.free_slots.sort()
        self.untold_slots.append(release.slot)

    patch.setattr(WorkerState, "_release", release)


def never_tell_of_freed_slots(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(WorkerState, "collect_untold", lambda self: [])


def evict_an_older_one(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(planner, "find_victim", lambda worker, sequence: worker.running[0])


PLANTS: list[Plant] = [
    share_without_counting,
    release_while_a_step_is_under_way,
    forget_the_salt,
    believe_failed_steps,
    requeue_before_the_last_token_is_applied,
    hit_the_whole_prompt,
    keep_the_name_of_a_block_given_out,
    leak_a_table,
    never_tell_of_freed_slots,
    evict_an_older_one,
]


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_noticed(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    assert preemption.preempt is planner.preempt
    plant(monkeypatch)
    for seed in range(NUM_SEEDS):
        try:
            simulation = Simulation(random.Random(seed), has_failures=True)
            for _ in range(500):
                simulation.step()
            simulation.settle()
        except (AssertionError, KeyError, IndexError, StopIteration, ValueError):
            return
    pytest.fail(f"{plant.__name__} survived {NUM_SEEDS} histories")
