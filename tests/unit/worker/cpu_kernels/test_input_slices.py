"""Slices of the inputs of a matrix: each input is in one of them, and the first has the bias."""

import pytest
import torch

from pagewire_shared.errors import StartupError
from pagewire_worker.checkpoint.coded_matrix import CodedMatrix
from pagewire_worker.cpu_kernels.input_slices import WHOLE_INPUTS, InputSlices
from pagewire_worker.cpu_kernels.packing import Part
from pagewire_worker.families.plan import LinearSpec

SPEC = LinearSpec(parts=(("down", 16),), num_inputs=64, has_bias=True)
VALUES = torch.arange(16 * 64, dtype=torch.float32).view(16, 64)
BIAS = [Part(torch.ones(16))]


def coded(group: int) -> CodedMatrix:
    codes = (torch.arange(16 * 64) % 100).to(torch.int8).view(16, 64)
    return CodedMatrix(codes=codes, table=None, scales=torch.rand(16, 64 // group))


def test_values() -> None:
    found = InputSlices(4, 4).of(SPEC, [Part(VALUES)], BIAS)
    assert [len(one.biases) for one in found] == [1, 0, 0, 0]
    assert torch.equal(torch.cat([one.weights[0].values for one in found], 1), VALUES)
    (whole,) = WHOLE_INPUTS.of(SPEC, [Part(VALUES)], BIAS)
    assert whole.weights[0].num_inputs == 64


def test_a_rank_has_some_of_the_slices() -> None:
    """Of four slices one rank has all four, and each of two ranks two: the same ones."""
    every = InputSlices(4, 4).of(SPEC, [Part(VALUES)], BIAS)
    half = LinearSpec(parts=SPEC.parts, num_inputs=32)
    second = InputSlices(4, 2).of(half, [Part(VALUES[:, 32:])], ())
    for one, other in zip(every[2:], second, strict=True):
        assert torch.equal(one.weights[0].values, other.weights[0].values)


def test_codes_keep_their_groups() -> None:
    matrix = coded(16)
    found = InputSlices(2, 2).of(SPEC, [Part(matrix)], BIAS)
    assert torch.equal(torch.cat([one.weights[0].values for one in found], 1), matrix.dense())
    assert {one.weights[0].num_inputs for one in found} == {32}


def test_a_group_that_would_be_cut_is_refused() -> None:
    message = (
        "^--sum-slices: tensor down.weight cannot be sliced: its groups of 32 inputs would be cut$"
    )
    with pytest.raises(StartupError, match=message) as caught:
        InputSlices(4, 4).of(SPEC, [Part(coded(32))], BIAS)
    assert caught.value.field == "sum_slices"
