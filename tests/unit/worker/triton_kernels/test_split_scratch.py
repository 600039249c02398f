"""The scratch memory of decodes: as much as their splits take, never more than is set aside, and
never a bit of difference."""

import numpy as np
import pytest
import torch

from pagewire_worker.attention.triton import TritonAttention
from pagewire_worker.backend.attention import AttentionKind
from pagewire_worker.backend.backend import DecodeBounds
from support.oracles.paged_cases import CPU, SPLIT_PLAN, PagedCase, draw

LENGTHS = [(200, 1), (1, 1), (30, 1), (33, 9), (70, 1), (2, 1)]


def attention_of(case, num_splits=None):
    """Return attention with scratch memory for so many splits, all that may be by default."""
    attention = TritonAttention(CPU, case.kind, SPLIT_PLAN)
    bounds = DecodeBounds(len(LENGTHS), 200)
    most = None if num_splits is None else num_splits * case.heads * (case.head_dim + 2) * 4
    attention.reserve(case.heads, case.head_dim, bounds, *([] if most is None else [most]))
    return attention


def attend(attention, case):
    return attention.prepare(case.metadata)(case.query, case.layer.cache)


@pytest.mark.parametrize("seed", range(6))
def test_scratch_of_any_size_gives_the_same_bits(seed, dice):
    case = draw(dice, torch.float32, LENGTHS)
    expected = attend(attention_of(case), case)
    for num_splits in (7, 8, 11):
        attention = attention_of(case, num_splits)
        assert torch.equal(attend(attention, case), expected)
        assert attention.scratch.num_splits >= num_splits
    assert torch.isfinite(expected).all()


def test_one_long_sequence_among_many_takes_no_more_than_its_own_splits():
    """Of 256 decodes one has 2048 splits; each had memory for as many before."""
    kind = AttentionKind()
    attention = TritonAttention(torch.device("meta"), kind)
    bounds = DecodeBounds(256, 2**20)
    attention.reserve(64, 128, bounds)
    assert attention.scratch.num_bytes <= 256 * 1024**2
    assert attention.scratch.num_splits >= 2**20 // 256
    counts = attention.plan_of(256).seen_splits(np.array([2**20] + [1000] * 255), None)
    assert counts.sum() == 2048 + 255 * 2
    assert attention.takes_at_once(np.array([2**20] + [1000] * 255))
    assert not attention.takes_at_once(np.array([2**20] * 3))


def test_a_window_needs_scratch_for_what_it_sees():
    attention = TritonAttention(torch.device("meta"), AttentionKind(window=512))
    attention.reserve(8, 64, DecodeBounds(16, 2**20))
    assert attention.scratch.num_splits <= 16 * 3
    assert attention.takes_at_once(np.full(16, 2**20))


def test_memory_is_allocated_once(dice, monkeypatch):
    case = draw(dice, torch.float32, LENGTHS)
    attention = attention_of(case)
    before = attention.scratch.sums.data_ptr()
    attend(attention, case)
    attend(attention, PagedCase(LENGTHS, case.heads, case.kv_heads, case.head_dim, 16, case.dtype))
    assert attention.scratch.sums.data_ptr() == before
