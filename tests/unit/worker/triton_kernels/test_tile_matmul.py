"""Products in tiles of one shape against float64, and the order of their sums."""

import pytest
import torch
from unit.worker.triton_kernels.conftest import TOLERANCES

from pagewire_worker.layers.tile_linear import TileLinear
from pagewire_worker.triton_kernels.tile_matmul import ProductScales, Tile, tile_matmul
from support.oracles.kernels import tile_matmul_oracle

SMALL = Tile(rows=16, columns=16, depth=16, num_stages=2)
WIDE = Tile(rows=16, columns=32, depth=32, num_stages=2)
EXACT = {torch.float32: 2**24, torch.float16: 2**11, torch.bfloat16: 2**8}
"""Up to here a type holds every integer."""


@pytest.mark.parametrize("tile", [None, SMALL, WIDE], ids=["its own", "small", "wide"])
@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("seed", range(12))
def test_equals_float64(seed, dtype, tile, dice):
    num_rows, num_outputs = dice.choice([1, 2, 15, 17, 64, 70]), dice.choice([1, 16, 33, 100, 130])
    num_inputs = dice.choice([1, 15, 16, 64, 100, 128])
    x = torch.randn(num_rows, num_inputs).to(dtype)
    weight = torch.randn(num_outputs, num_inputs).mul(num_inputs**-0.5).to(dtype)
    bias = torch.randn(num_outputs).to(dtype) if dice.random() < 0.5 else None
    expected = tile_matmul_oracle(x, weight, bias)
    torch.testing.assert_close(tile_matmul(x, weight, bias, tile), expected, **TOLERANCES[dtype])


@pytest.mark.parametrize("seed", range(12))
def test_every_tile_lands_in_its_place(seed, dice):
    """Integers that float32 holds leave nothing to tolerance; more rows of tiles than a group."""
    num_rows, num_outputs = dice.randint(100, 350), dice.randint(1, 70)
    x = torch.randint(-8, 9, (num_rows, 20)).float()
    weight = torch.randint(-8, 9, (num_outputs, 20)).float()
    assert torch.equal(tile_matmul(x, weight, tile=SMALL), x @ weight.T)


def test_rows_may_lie_apart():
    wide, weights = torch.randn(20, 96), torch.randn(30, 80)
    x, weight = wide[:, 8:48], weights[:, 16:56]
    expected = tile_matmul_oracle(x, weight)
    found = tile_matmul(x, weight, tile=SMALL)
    torch.testing.assert_close(found, expected, **TOLERANCES[torch.float32])


def test_no_rows():
    assert tile_matmul(torch.empty(0, 16), torch.randn(5, 16)).shape == (0, 5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("seed", range(6))
def test_what_is_in_the_rest_of_a_tile_is_not_added(seed, dtype, dice):
    """Rows, outputs and inputs behind the ends hold no number, as memory of others may."""
    num_rows, num_outputs, num_inputs = (
        dice.randint(1, 20),
        dice.randint(1, 20),
        dice.randint(1, 40),
    )
    x = torch.full((32, 48), float("nan")).to(dtype)
    weight = x.clone()
    x[:num_rows, :num_inputs] = torch.randint(-3, 4, (num_rows, num_inputs)).to(dtype)
    weight[:num_outputs, :num_inputs] = torch.randint(-3, 4, (num_outputs, num_inputs)).to(dtype)
    x, weight = x[:num_rows, :num_inputs], weight[:num_outputs, :num_inputs]
    found = tile_matmul(x, weight, tile=SMALL)
    assert torch.equal(found, (x.float() @ weight.float().T).to(dtype))


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
def test_a_bias_is_added_before_the_one_rounding(dtype):
    """2^n + 1 + 1: rounded after each addition the ones are lost, rounded once they are not."""
    large = EXACT[dtype] // 2 if dtype == torch.float32 else EXACT[dtype]
    x = torch.ones(1, 2, dtype=dtype)
    weight = torch.tensor([[large, 1]], dtype=dtype)
    bias = torch.ones(1, dtype=dtype)
    assert tile_matmul(x, weight, bias).item() == large + 2


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_integers_are_summed_as_integers_and_scaled_once(seed, dtype, dice):
    num_rows, num_inputs, num_outputs = dice.choice([1, 17]), dice.choice([16, 100]), 20
    x = torch.randint(-127, 128, (num_rows, num_inputs), dtype=torch.int8)
    weight = torch.randint(-127, 128, (num_outputs, num_inputs), dtype=torch.int8)
    rows, outputs = (torch.rand(size, 1) / 32 for size in (num_rows, num_outputs))
    bias = torch.randn(num_outputs).to(dtype) if seed else None
    scales = ProductScales(rows, outputs, dtype)
    sums = (x.int() @ weight.int().T).float() * rows * outputs.T
    expected = sums if bias is None else sums + bias.float()
    found = tile_matmul(x, weight, bias, SMALL, scales)
    assert found.dtype == dtype
    torch.testing.assert_close(found, expected.to(dtype), **TOLERANCES[dtype])


def in_order(terms):
    """Add float32 numbers one after the other."""
    total = torch.tensor(0.0)
    for term in terms:
        total = total + torch.tensor(float(term))
    return total.item()


@pytest.mark.parametrize("seed", range(20))
def test_sums_follow_the_order_of_inputs(seed, dice):
    """Numbers whose sum in float32 tells their order, one to a tile."""
    large = 2.0**24
    terms = [large, -large, 1.0, 1.0, 3.0, dice.choice([large, 1.0])]
    dice.shuffle(terms)
    x = torch.zeros(1, len(terms) * SMALL.depth)
    for number, term in enumerate(terms):
        x[0, number * SMALL.depth + dice.randrange(SMALL.depth)] = term
    weight = torch.ones(1, x.shape[1])
    assert tile_matmul(x, weight, tile=SMALL).item() == in_order(terms)


def test_some_of_these_orders_differ():
    large = 2.0**24
    assert in_order([large, 1.0, -large]) != in_order([large, -large, 1.0])


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("seed", range(8))
def test_who_else_is_in_the_batch_changes_no_bit(seed, dtype, dice):
    """At its place a row is the same, however many there are and whatever they hold."""
    linear = TileLinear(torch.randn(50, 100).to(dtype), torch.randn(50).to(dtype))
    few, many = sorted(dice.sample(range(1, 150), 2))
    row = dice.randrange(few)
    x = torch.randn(many, 100).to(dtype)
    others = torch.randn(few, 100).to(dtype)
    others[row] = x[row]
    assert torch.equal(linear(x)[row], linear(others)[row])


def test_wider_weights_have_wider_tiles():
    columns = [Tile.of(torch.bfloat16, size).columns for size in (64, 1024, 4096, 6144, 152064)]
    assert columns == [32, 32, 64, 64, 128]
