"""The sampling parameters of drafts that follow each other are those of their places."""

import numpy as np
import pytest
import torch

from pagewire_shared.sampling.params import SamplingParams
from pagewire_worker.batch.slots import SlotLimits, SlotTable
from pagewire_worker.speculation.draft_sampling import DraftSampling
from support.cells.worker_driver import request

RANDOM = SamplingParams(temperature=0.8, seed=5, top_p=0.9)
PENALIZED = SamplingParams(temperature=0.8, seed=6, presence_penalty=1.0)
EARLY = SamplingParams(temperature=0.8, seed=7, min_tokens=8)
GREEDY = SamplingParams(temperature=0.0)


@pytest.mark.parametrize("other", [RANDOM, PENALIZED, EARLY, GREEDY])
def test_they_are_those_of_the_table(other):
    limits = SlotLimits(num_slots=2, num_blocks=1, block_size=16, max_model_len=64, vocab_size=9)
    table = SlotTable(limits, torch.device("cpu"))
    for slot, sampling in enumerate((RANDOM, other)):
        table.sampling.set(request(slot, sampling=sampling))
    table.prompt_lens[:] = 3, 4
    tokens = torch.zeros(2, 64, dtype=torch.int32)
    drafts = DraftSampling(table, tokens)
    drafts.begin()
    slots, ends = np.array([0, 1]), np.array([8, 9])
    for step in range(6):
        if step == 4:
            slots, ends = slots[1:], ends[1:]
        found = drafts.rows(slots, ends)
        expected = table.sampling.rows(slots, ends - table.prompt_lens[slots])
        for name in ("position", "seed_low", "choice", "temperature", "top_p"):
            assert np.array_equal(getattr(found, name), getattr(expected, name)), name
        assert [row for row, _ in found.banned] == [row for row, _ in expected.banned]
        assert len(found.penalties.affected()) == len(expected.penalties.affected())
        ends = ends + 1
