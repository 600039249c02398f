"""Healthy rows beside one of NaN or infinity keep their bits; what becomes of it itself."""

import pytest
import torch
from unit.worker.triton_kernels.device_casts import round_as_devices_do

from pagewire_worker.checkpoint.coded_matrix import of_unsigned
from pagewire_worker.triton_kernels.activate import activate
from pagewire_worker.triton_kernels.add_norm import add_norm
from pagewire_worker.triton_kernels.code_matmul import CodeTile, code_matmul
from pagewire_worker.triton_kernels.filter_thresholds import filter_thresholds
from pagewire_worker.triton_kernels.packed_codes import packed
from pagewire_worker.triton_kernels.quantize_rows import quantize_rows
from pagewire_worker.triton_kernels.sample_tokens import greedy_tokens, sample_tokens
from pagewire_worker.triton_kernels.tile_matmul import Tile, tile_matmul
from support.oracles.paged_cases import chunks, decode, draw

# Of the interpreter of Triton.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
TILE = Tile(rows=16, columns=16, depth=16, num_stages=2)
NUM_ROWS, SIZE, BAD = 5, 40, 2
HEALTHY = [0, 1, 3, 4]
CODE_TILE = CodeTile(rows=16, columns=16, num_stages=2)
CODES = packed(
    of_unsigned(
        torch.arange(20 * SIZE).view(20, SIZE).to(torch.uint8) % 16, 4, torch.ones(20, 1), None
    ),
    torch.device("cpu"),
)


def weight_like(x, *shape):
    return torch.linspace(0.5, 1.5, SIZE * SIZE).reshape(SIZE, SIZE)[: shape[0]].to(x.dtype)


OPERATORS = {
    "add_norm": lambda x: add_norm(x, x.clone(), weight_like(x, 1)[0].contiguous(), 1e-5),
    "activate": activate,
    "quantize_rows": lambda x: torch.cat([part.float() for part in quantize_rows(x)], 1),
    "quantize_rows to int8": lambda x: torch.cat(
        [part.float() for part in quantize_rows(x, torch.int8)], 1
    ),
    "code_matmul": lambda x: code_matmul(x, CODES, tile=CODE_TILE),
    "tile_matmul": lambda x: tile_matmul(x, weight_like(x, 20), tile=TILE),
}


@pytest.fixture(params=[float("nan"), float("inf"), float("-inf")], ids=str)
def broken(request, dice):
    """Rows, and the same with one that is broken as a whole, or in one element."""
    rows = torch.randn(NUM_ROWS, SIZE)
    whole, one = rows.clone(), rows.clone()
    whole[BAD], one[BAD, 7] = request.param, request.param
    return rows, (whole, one)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("name", OPERATORS)
def test_healthy_rows_keep_their_bits(name, dtype, broken, monkeypatch):
    round_as_devices_do(monkeypatch)
    rows, damaged = broken
    expected = OPERATORS[name](rows.to(dtype))
    assert expected.isfinite().all()
    for bad in damaged:
        found = OPERATORS[name](bad.to(dtype))
        assert torch.equal(found[HEALTHY], expected[HEALTHY])
        # Nobody makes a number of what is none: the fault is still seen where tokens are chosen.
        if not (name == "activate" and bad[BAD, 7] == float("-inf")):
            assert not found[BAD].isfinite().all()


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_tokens_of_healthy_rows_stay_and_the_broken_one_is_flagged(temperature, broken):
    rows, damaged = broken
    heat, noise = torch.full((NUM_ROWS,), temperature), torch.arange(NUM_ROWS)
    filters = [torch.full((NUM_ROWS,), value) for value in (0.01, 6, 0.9)]

    def choose(logits):
        faults = torch.empty(NUM_ROWS, dtype=torch.int64)
        threshold = filter_thresholds(logits, heat, *filters, block=32)
        tokens = sample_tokens(logits, heat, *(noise,) * 4, threshold, split=16, faults=faults)
        return tokens, faults

    expected, faults = choose(rows)
    assert not faults.any()
    for bad in damaged:
        is_allowed = bad[BAD, 7] == float("-inf")
        for tokens, faults in (choose(bad), greedy(bad)):
            assert faults.tolist() == [0, 0, 0 if is_allowed else 1, 0, 0]
            assert ((tokens >= 0) & (tokens < SIZE)).all()
        assert torch.equal(choose(bad)[0][HEALTHY], expected[HEALTHY])


def greedy(logits):
    faults = torch.empty(NUM_ROWS, dtype=torch.int64)
    return greedy_tokens(logits, split=16, faults=faults), faults


@pytest.mark.parametrize("attend", [decode, chunks])
@pytest.mark.parametrize("part", ["query", "cache"])
@pytest.mark.parametrize("seed", range(3))
def test_sequences_beside_a_broken_one_keep_their_bits(seed, part, attend, dice):
    case = draw(dice, torch.float32, [(30, 1), (20, 1), (33, 1)])
    expected = attend(case)
    if part == "query":
        case.query[1] = float("nan")
    else:
        blocks = case.tables[1, : -(-20 // case.block_size)]
        case.storage[blocks] = float("nan")
    found = attend(case)
    assert torch.equal(found[[0, 2]], expected[[0, 2]])
    assert found[1].isnan().any()
