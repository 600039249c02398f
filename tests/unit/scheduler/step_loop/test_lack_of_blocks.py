"""Who lacks blocks behind a long cached prefix is not walked again until something has changed."""

import random
from dataclasses import replace
from typing import Any

import pytest
from unit.scheduler.cell import FRONTEND, Cell
from unit.scheduler.hellos import MODEL

from pagewire_scheduler.core.blocks.prefix_cache import CachedPrefix
from pagewire_scheduler.core.planning import schedule_waiting as starting
from pagewire_scheduler.core.state import worker as placed
from pagewire_shared.sampling.params import SamplingParams

LONG = SamplingParams(max_tokens=40, ignore_eos=True)
LONG_MODEL = replace(MODEL, max_model_len=1000)
PREFIX = [number % 37 for number in range(400)]


def test_who_lacks_blocks_is_not_looked_up_in_every_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    changes = {"max_num_seqs": 20, "max_num_batched_tokens": 1000}
    cell = Cell(num_blocks=160, model=LONG_MODEL, steps_in_flight=1, **changes)
    cell.submit(1, PREFIX, sampling=LONG)
    cell.answer(cell.planned())
    for number in range(2, 12):  # each with 20 blocks of its own behind the prefix
        own = [(number * 7 + at) % 37 for at in range(80)]
        cell.submit(number, PREFIX + own, sampling=LONG)
    cell.answer(cell.planned())
    worker = cell.core.workers[cell.info.worker_id]
    assert len(worker.waiting) >= 5
    assert len(worker.running) >= 2
    num_walks = 0
    find_prefix = placed.find_prefix

    def counted(*args: Any) -> CachedPrefix:
        nonlocal num_walks
        num_walks += 1
        return find_prefix(*args)

    monkeypatch.setattr(placed, "find_prefix", counted)
    for _ in range(20):
        cell.answer(cell.planned())
    assert len(worker.waiting) >= 5
    assert num_walks <= 2 * len(worker.waiting)


@pytest.mark.parametrize("seed", range(6))
def test_what_is_remembered_is_what_a_walk_finds(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    dice = random.Random(seed)
    num_remembered = 0
    place_for = starting._place_for

    def checked(builder: Any, sequence: Any) -> object:
        nonlocal num_remembered
        lack = sequence.fairness.lack
        place = place_for(builder, sequence)
        num_remembered += place is None and lack is not None and sequence.fairness.lack is lack
        sequence.fairness.lack, probe_blocks = None, sequence.fairness.lack
        assert place_for(builder, sequence) == place
        sequence.fairness.lack = probe_blocks
        return place

    monkeypatch.setattr(starting, "_place_for", checked)
    cell = Cell(num_blocks=48, max_num_seqs=8, max_num_batched_tokens=24, max_num_waiting=10**6)
    plans = []
    for number in range(1, 400):
        if len(cell.core.requests) < 12:
            shared = PREFIX[: dice.choice([8, 16, 30])]
            prompt = shared + [dice.randrange(37) for _ in range(dice.randrange(1, 20))]
            sampling = SamplingParams(max_tokens=dice.randrange(1, 14), ignore_eos=True)
            cell.submit(number, prompt, sampling=sampling, priority=dice.randrange(-2, 3))
        if dice.random() < 0.05:
            cell.core.abort(FRONTEND, dice.randrange(1, number + 1), None)
        if dice.random() < 0.02:
            cell.core.kv_caches.reset(None)
        while (plan := cell.plan()) is not None:
            plans.append(plan)
        if plans:
            cell.answer(plans.pop(0), token=dice.randrange(37))
    assert num_remembered > 20
