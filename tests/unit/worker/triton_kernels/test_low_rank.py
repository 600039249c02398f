"""Adapters on kernels against those in plain torch, and rows alone against rows in a batch."""

import pytest
import torch
from unit.worker.triton_kernels.conftest import TOLERANCES

from pagewire_worker.backend.adapters import NO_ADAPTER, AdapterRows
from pagewire_worker.cuda.triton_adapters import TritonSum
from pagewire_worker.models.adapter_tensors import RANK_STEP, SlotTensors, TorchSum
from pagewire_worker.triton_kernels import low_rank

NUM_SLOTS, MAX_RANK, INPUTS = 4, 32, 70
RANKS = (1, 32, 7, 16)


def slot_tensors(sizes: tuple[int, ...], dtype: torch.dtype) -> SlotTensors:
    bounds, begin = [], 0
    for size in sizes:
        bounds.append((begin, begin + size))
        begin += size
    down = torch.zeros(NUM_SLOTS, len(sizes) * MAX_RANK, INPUTS)
    up = torch.zeros(NUM_SLOTS, begin, MAX_RANK)
    for slot, rank in enumerate(RANKS):
        up[slot, :, :rank] = torch.randn(begin, rank)
        for part in range(len(sizes)):
            first = part * MAX_RANK
            down[slot, first : first + rank] = torch.randn(rank, INPUTS) * 0.1
    return SlotTensors(
        bounds=tuple(bounds),
        down=down.to(dtype),
        up=up.to(dtype),
        scalings=torch.rand(NUM_SLOTS, len(sizes)) + 0.5,
        ranks=torch.tensor(RANKS, dtype=torch.int32),
    )


def rows_of(slots: list[int]) -> AdapterRows:
    used = tuple(sorted({slot for slot in slots if slot != NO_ADAPTER}))
    return AdapterRows(torch.tensor(slots), used)


def added(sums, y, x, slots, tensors):
    rows = sums.prepare(rows_of(slots), NUM_SLOTS)
    return sums.add(y.clone(), x, rows, tensors)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("sizes", [(80,), (48, 48), (64, 16, 70)])
def test_sums_are_those_of_torch(sizes, dtype):
    torch.manual_seed(1)
    tensors = slot_tensors(sizes, dtype)
    slots = [2, NO_ADAPTER, 0, 1, 3, 1, NO_ADAPTER, *[1] * 20]
    x = torch.randn(len(slots), INPUTS).to(dtype)
    y = torch.randn(len(slots), sum(sizes)).to(dtype)
    found = added(TritonSum(), y, x, slots, tensors)
    torch.testing.assert_close(found, added(TorchSum(), y, x, slots, tensors), **TOLERANCES[dtype])
    plain = [row for row, slot in enumerate(slots) if slot == NO_ADAPTER]
    assert torch.equal(found[plain], y[plain])
    assert not torch.allclose(found, y, atol=0.1)


def test_a_row_has_the_same_bits_in_any_batch():
    torch.manual_seed(2)
    tensors = slot_tensors((48, 16), torch.float32)
    slots = [3, 1, NO_ADAPTER, *[3] * 17, 0]
    x, y = torch.randn(len(slots), INPUTS), torch.randn(len(slots), 64)
    found = added(TritonSum(), y, x, slots, tensors)
    for row in (0, 1, 2, 12, len(slots) - 1):
        own = slice(row, row + 1)
        assert torch.equal(added(TritonSum(), y[own], x[own], slots[own], tensors), found[own])


def test_ranks_are_stored_in_the_steps_of_the_kernels():
    assert RANK_STEP == low_rank.RANK_STEP
