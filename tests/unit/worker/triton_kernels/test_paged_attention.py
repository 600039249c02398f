"""Paged attention of decodes and chunks against float64, and against each other bit for bit."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from unit.worker.triton_kernels.conftest import TOLERANCES

from pagewire_worker.triton_kernels import decode_attention
from pagewire_worker.triton_kernels.paged_sequences import SplitPlan
from pagewire_worker.triton_kernels.prompt_attention import PromptTiles
from support.oracles.paged_cases import UNTOUCHED, assert_right, chunks, decode, draw, prompts


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("seed", range(25))
def test_decodes_equal_float64(seed, dtype, dice):
    lengths = [(dice.choice([1, 2, 15, 16, 17, 33, 64, 70]), 1) for _ in range(dice.randint(1, 3))]
    case = draw(dice, dtype, lengths)
    assert_right(case, decode(case), TOLERANCES[dtype])


@pytest.mark.parametrize("num_rows", [16, 32])
@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("seed", range(16))
def test_chunks_equal_float64(seed, dtype, num_rows, dice):
    lengths = []
    for _ in range(dice.randint(1, 2)):
        length = dice.choice([1, 7, 16, 33, 50])
        lengths.append((length, dice.randint(1, min(length, 20))))
    case = draw(dice, dtype, lengths)
    assert_right(case, chunks(case, num_rows=num_rows), TOLERANCES[dtype])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("seed", range(16))
def test_prompts_in_one_pass_equal_float64(seed, dtype, dice):
    lengths = []
    for _ in range(dice.randint(1, 3)):
        length = dice.choice([1, 16, 33, 64, 70])
        lengths.append((length, dice.randint(1, length)))
    cut = PromptTiles(rows=dice.choice([16, 32]), positions=16)
    case = draw(dice, dtype, lengths)
    assert_right(case, prompts(case, cut), TOLERANCES[dtype])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("seed", range(8))
def test_keys_and_values_of_eight_bits(seed, dtype, dice):
    case = draw(dice, dtype, [(dice.randint(1, 50), 1) for _ in range(2)])
    scales = {"key_scale": 0.5, "value_scale": 0.25}
    case = replace(case, cache_dtype=torch.float8_e4m3fn, **scales)
    assert_right(case, decode(case), TOLERANCES[dtype])
    assert_right(case, chunks(case), TOLERANCES[dtype])


@pytest.mark.parametrize("seed", range(12))
def test_a_token_gets_the_same_bits_from_a_chunk_and_as_a_decode(seed, dice):
    case = draw(dice, torch.float32, [(dice.randint(1, 70), 1) for _ in range(2)])
    assert torch.equal(decode(case), chunks(case))


def test_sequences_that_are_not_asked_for_are_left_alone(dice):
    case = draw(dice, torch.float32, [(20, 1), (30, 1), (9, 1)])
    for attended in (decode(case, [1]), chunks(case, [1])):
        assert (attended[[0, 2]] == UNTOUCHED).all()
        torch.testing.assert_close(
            attended[1:2].double(), case.expected(1), **TOLERANCES[torch.float32]
        )


def test_a_padding_sequence_of_a_captured_graph_attends_to_nothing(dice):
    case = draw(dice, torch.float32, [(20, 1), (30, 1)])
    case.metadata = replace(case.metadata, seq_lens=np.array([20, 0]))
    attended = decode(case)
    assert (attended[1] == 0).all()


def test_more_splits_than_a_sequence_has_change_nothing(dice):
    case = draw(dice, torch.float32, [(20, 1), (70, 1)])
    few, many = (decode(case, [0], num_splits=num_splits) for num_splits in (1, 5))
    assert torch.equal(few, many)
    torch.testing.assert_close(many[:1].double(), case.expected(0), **TOLERANCES[torch.float32])


def test_another_cut_is_another_sum_of_the_same(dice):
    case = draw(dice, torch.float32, [(70, 5)])
    assert_right(
        case, chunks(case, split_plan=SplitPlan(split=64, tile=32)), TOLERANCES[torch.float32]
    )


@pytest.mark.parametrize("seed", range(6))
def test_programs_that_take_several_splits_change_nothing(seed, dice, monkeypatch):
    case = draw(dice, torch.float32, [(dice.randint(1, 140), 1) for _ in range(2)])
    expected = decode(case)
    monkeypatch.setattr(decode_attention, "MOST_PROGRAMS", 1)
    monkeypatch.setattr(decode_attention, "LEAST_SPLIT_PROGRAMS", dice.choice([1, 2]))
    assert torch.equal(decode(case), expected)
    assert_right(case, expected, TOLERANCES[torch.float32])
