"""Kernels of paged attention on a CUDA device: right, and the same bits however a token comes."""

import random
from dataclasses import replace

import pytest
import torch

from pagewire_worker.attention.triton import EXACT_CHUNK_ROWS
from pagewire_worker.triton_kernels.paged_sequences import SplitPlan
from support.oracles.paged_cases import assert_right, chunks, decode, draw, prompts

pytestmark = pytest.mark.gpu
CUDA = torch.device("cuda")
SPLIT_PLAN = SplitPlan()
TOLERANCES = {
    torch.float32: {"rtol": 2e-5, "atol": 2e-5},
    torch.float16: {"rtol": 4e-3, "atol": 4e-3},
    torch.bfloat16: {"rtol": 2e-2, "atol": 2e-2},
}


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("seed", range(20))
def test_decodes_and_chunks_equal_float64(seed, dtype):
    dice = random.Random(seed)
    torch.manual_seed(seed)
    lengths = [(dice.choice([1, 17, 255, 256, 257, 600, 1500]), 1) for _ in range(5)]
    case = replace(draw(dice, dtype, lengths), head_dim=dice.choice([64, 80, 128]))
    for attended in (
        decode(case, split_plan=SPLIT_PLAN, device=CUDA),
        chunks(case, split_plan=SPLIT_PLAN, device=CUDA),
    ):
        assert_right(case, attended, TOLERANCES[dtype])
    if dtype != torch.float32:
        assert_right(case, prompts(case, device=CUDA), TOLERANCES[dtype])
    lengths = [(length, min(length, dice.randint(2, 200))) for length, _ in lengths]
    case = replace(case, lengths=lengths)
    assert_right(
        case, chunks(case, num_rows=64, split_plan=SPLIT_PLAN, device=CUDA), TOLERANCES[dtype]
    )
    if dtype != torch.float32:
        assert_right(case, prompts(case, device=CUDA), TOLERANCES[dtype])


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("seed", range(6))
def test_a_token_gets_the_same_bits_from_a_chunk_and_as_a_decode(seed, dtype):
    dice = random.Random(seed)
    torch.manual_seed(seed)
    lengths = [(dice.choice([17, 255, 600, 1500]), 1) for _ in range(4)]
    case = replace(draw(dice, dtype, lengths), head_dim=128)
    attended = chunks(case, num_rows=EXACT_CHUNK_ROWS, split_plan=SPLIT_PLAN, device=CUDA)
    assert torch.equal(decode(case, split_plan=SPLIT_PLAN, device=CUDA), attended)
    assert torch.equal(decode(case, [2], SPLIT_PLAN, CUDA)[2], attended[2])
