"""Rows in 8-bit floats and int8, bit for bit as torch gives them."""

import pytest
import torch
from unit.worker.triton_kernels.conftest import TOLERANCES
from unit.worker.triton_kernels.device_casts import round_as_devices_do

from pagewire_worker.triton_kernels.quantize_rows import LARGEST, LEAST_LARGEST, quantize_rows
from support.oracles.kernels import quantize_rows_oracle

FP8_MAX = 448.0


@pytest.fixture(autouse=True)
def rounded(monkeypatch):
    round_as_devices_do(monkeypatch)


def bits(x):
    return x.view(torch.uint8)


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("kept", LARGEST, ids=str)
@pytest.mark.parametrize("seed", range(12))
def test_equals_torch(seed, kept, dtype, dice):
    num_rows, size = dice.randint(1, 5), dice.choice([1, 16, 100, 1024, 8192, 8200, 20000])
    x = (torch.randn(num_rows, size) * 10.0 ** dice.randint(-4, 4)).to(dtype)
    quantized, scales = quantize_rows(x, kept)
    expected, expected_scales = quantize_rows_oracle(x, kept)
    assert torch.equal(scales, expected_scales)
    assert torch.equal(bits(quantized), bits(expected))


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("seed", range(6))
def test_a_number_comes_back_to_within_its_mantissa(seed, dtype, dice):
    """3 bits of it: half a step is 1/16 of a number, and 2^-10 of the smallest that has 3."""
    x = torch.randn(4, 200).to(dtype)
    quantized, scales = quantize_rows(x)
    error = (quantized.float() * scales - x.float()).abs()
    assert (error <= (x.float().abs() / 16).maximum(scales * 2.0**-10) * 1.001).all()


def test_the_largest_number_of_a_row_becomes_the_largest_of_the_type():
    x = torch.tensor([[1.0, -2.0, 0.5], [1000.0, 3.0, 0.0]])
    quantized, scales = quantize_rows(x)
    assert quantized.float()[0, 1] == -FP8_MAX
    assert quantized.float()[1, 0] == FP8_MAX
    torch.testing.assert_close(scales, torch.tensor([[2.0 / FP8_MAX], [1000.0 / FP8_MAX]]))


@pytest.mark.parametrize("fill", [0.0, LEAST_LARGEST / 2**60, 1e-44])
def test_rows_of_next_to_nothing(fill):
    quantized, scales = quantize_rows(torch.full((2, 40), fill))
    assert (quantized.float() == 0).all()
    assert (scales == LEAST_LARGEST / FP8_MAX).all()


@pytest.mark.filterwarnings("ignore:invalid value encountered in divide")
def test_no_number_stays_none():
    x = torch.randn(3, 40)
    x[1, 7], x[2, 3] = float("nan"), float("inf")
    quantized, _ = quantize_rows(x)
    is_none = quantized.float().isnan()
    assert is_none[1, 7]
    assert is_none[2, 3]
    assert not is_none[0].any()


def test_halves_become_even_integers():
    x = torch.tensor([[127.0, 0.5, 1.5, -0.5, -2.5, 63.49]])
    quantized, scales = quantize_rows(x, torch.int8)
    assert quantized.tolist() == [[127, 0, 2, 0, -2, 63]]
    assert scales.item() == 1.0


@pytest.mark.filterwarnings("ignore:invalid value encountered in divide")
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_no_integer_hides_what_is_no_number(bad):
    x = torch.randn(3, 40)
    x[1, 7] = bad
    _, scales = quantize_rows(x, torch.int8)
    assert scales.isnan().flatten().tolist() == [False, True, False]


def test_rows_may_lie_apart():
    wide = torch.randn(4, 96)
    for found, expected in zip(
        quantize_rows(wide[:, 8:48]), quantize_rows(wide[:, 8:48].clone()), strict=True
    ):
        assert torch.equal(found.float(), expected.float())


def test_a_row_depends_on_no_other():
    x = torch.randn(9, 300)
    quantized, scales = quantize_rows(x)
    alone, scale = quantize_rows(x[4:5])
    assert torch.equal(bits(alone[0]), bits(quantized[4]))
    assert torch.equal(scale[0], scales[4])


def test_no_rows():
    quantized, scales = quantize_rows(torch.empty(0, 16))
    assert (quantized.shape, scales.shape) == ((0, 16), (0, 1))
