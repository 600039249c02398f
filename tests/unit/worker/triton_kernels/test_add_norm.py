"""Residual addition and RMS norm against torch."""

import pytest
import torch
from unit.worker.triton_kernels.conftest import TOLERANCES
from unit.worker.triton_kernels.device_casts import round_as_devices_do

from pagewire_worker.layers.norm import LayerNorm, RmsNorm
from pagewire_worker.triton_kernels.add_norm import add_norm
from support.oracles.kernels import add_norm_oracle

EPSILON = 1e-5


@pytest.fixture(autouse=True)
def _casts(monkeypatch):
    round_as_devices_do(monkeypatch)


def _random(num_tokens, hidden, dtype, spread=1.0):
    x, residual = torch.randn(2, num_tokens, hidden).mul(spread).to(dtype)
    return x, residual, torch.randn(hidden).mul(0.2).add(1.0).to(dtype)


def _assert_equals_torch(x, residual, weight, rows=None):
    expected_residual = residual.clone()
    expected = add_norm_oracle(x, expected_residual, weight, EPSILON, rows)
    normed = add_norm(x, residual, weight, EPSILON, rows)
    assert torch.equal(residual, expected_residual)  # one sum, one rounding: the same bits
    torch.testing.assert_close(normed, expected, **TOLERANCES[residual.dtype])


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("seed", range(24))
def test_equals_torch(seed, dtype, dice):
    hidden = dice.choice([1, 2, 16, 100, 128, 896, 1024, 1500])
    x, residual, weight = _random(dice.randint(1, 5), hidden, dtype, dice.choice([0.01, 1, 30]))
    rows = None
    if dice.random() < 0.3:
        x = None
        if dice.random() < 0.5:
            rows = torch.randint(len(residual), (dice.randint(0, 6),))
    _assert_equals_torch(x, residual, weight, rows)


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
def test_without_x_the_residual_is_left_alone_and_the_layer_says_the_same(dtype, dice):
    _, residual, weight = _random(3, 96, dtype)
    before = residual.clone()
    normed = add_norm(None, residual, weight, EPSILON)
    assert torch.equal(residual, before)
    torch.testing.assert_close(normed, RmsNorm(weight, EPSILON)(before), **TOLERANCES[dtype])


def test_rows_come_in_their_order_and_may_repeat(dice):
    _, residual, weight = _random(6, 48, torch.float32)
    rows = torch.tensor([5, 0, 0, 3])
    normed = add_norm(None, residual, weight, EPSILON, rows)
    assert torch.equal(normed, add_norm(None, residual, weight, EPSILON)[rows])


def test_rows_may_lie_apart_and_what_is_between_is_left_alone(dice):
    wide_x, wide_residual = torch.randn(2, 3, 64)
    between = wide_residual[:, 40:].clone()
    _assert_equals_torch(wide_x[:, 10:50], wide_residual[:, :40], torch.ones(40))
    assert torch.equal(wide_residual[:, 40:], between)


def test_the_widest_row_fits(dice):
    _assert_equals_torch(*_random(2, 16384, torch.bfloat16))


def test_no_tokens_are_no_programs(dice):
    _, residual, weight = _random(0, 32, torch.float32)
    assert add_norm(None, residual, weight, EPSILON).shape == (0, 32)
    assert add_norm(residual.clone(), residual, weight, EPSILON).shape == (0, 32)


def test_a_row_of_zeros_stays_zeros(dice):
    residual = torch.zeros(1, 32)
    normed = add_norm(None, residual, torch.ones(32), EPSILON)
    assert torch.equal(normed, torch.zeros(1, 32))


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
def test_bits_of_a_row_do_not_depend_on_other_rows(dtype, dice):
    x, residual, weight = _random(5, 200, dtype)
    alone = residual[3:4].clone()
    normed_alone = add_norm(x[3:4], alone, weight, EPSILON)
    normed = add_norm(x, residual, weight, EPSILON)
    assert torch.equal(normed[3:4], normed_alone)
    assert torch.equal(residual[3:4], alone)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_rounds_the_sum_and_the_norm_before_the_weight(dtype, dice):
    x, residual, weight = _random(4, 1000, dtype)
    wide = x.float() + residual.float()

    def norm(values):
        return values * torch.rsqrt(values.square().mean(-1, keepdim=True) + EPSILON)

    rounded = wide.to(dtype).float()
    published = (norm(rounded).to(dtype).float() * weight.float()).to(dtype)
    of_wide_sum = (norm(wide).to(dtype).float() * weight.float()).to(dtype)
    of_wide_norm = (norm(rounded) * weight.float()).to(dtype)
    normed = add_norm(x, residual, weight, EPSILON)

    def share_of_other_bits(values):
        return (normed != values).float().mean().item()

    # The order of a sum may still turn a rounding now and then.
    assert share_of_other_bits(published) < 0.005
    assert share_of_other_bits(of_wide_sum) > 0.05
    assert share_of_other_bits(of_wide_norm) > 0.05


def test_rows_are_not_taken_with_something_to_add(dice):
    x, residual, weight = _random(2, 16, torch.float32)
    with pytest.raises(AssertionError):
        add_norm(x, residual, weight, EPSILON, torch.tensor([0]))


def test_a_residual_wider_than_a_program_can_hold_is_refused():
    with pytest.raises(AssertionError):
        add_norm(None, torch.zeros(1, 16385), torch.zeros(16385), EPSILON)


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("seed", range(4))
def test_a_wide_weight_is_multiplied_before_rounding(seed, dtype, dice):
    _, residual, weight = _random(3, dice.choice([48, 100, 128]), dtype)
    wide = weight.float() + 0.001
    expected = RmsNorm(wide, EPSILON)(residual)
    found = add_norm(None, residual, wide, EPSILON)
    torch.testing.assert_close(found, expected, **TOLERANCES[dtype])
    assert found.dtype == dtype


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("seed", range(4))
def test_with_a_bias_it_is_a_layer_norm(seed, dtype, dice):
    x, residual, weight = _random(3, dice.choice([48, 100, 128]), dtype)
    residual, bias = residual + 3, torch.randn(len(weight)).to(dtype)
    summed = residual + x
    found = add_norm(x, residual, weight, EPSILON, None, bias)
    torch.testing.assert_close(found, LayerNorm(weight, bias, EPSILON)(summed), **TOLERANCES[dtype])
    assert torch.equal(residual, summed)
