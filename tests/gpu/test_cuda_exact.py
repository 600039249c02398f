"""The same bits whatever happens, on a CUDA device: products, attention, and models in random
batches against each request alone."""

import functools
import random
from collections.abc import Callable

import pytest
import torch

from pagewire_worker.layers.fp8 import LEAST_CAPABILITY
from pagewire_worker.layers.tile_linear import TileLinear
from pagewire_worker.triton_kernels.tile_matmul import Tile, tile_matmul
from support.cells.exact_cells import SOLO, ExactCell
from support.checkpoints.checkpoints import make_checkpoint
from support.oracles.exact_requests import CHECKPOINTS, VOCAB, Case, check_batches, draw_requests
from support.oracles.kernels import tile_matmul_oracle

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(500)]

CUDA = torch.device("cuda")
TOLERANCES = {
    torch.float32: {"rtol": 2e-5, "atol": 2e-5},
    torch.float16: {"rtol": 2e-3, "atol": 2e-3},
    torch.bfloat16: {"rtol": 1e-2, "atol": 1e-2},
}
SHAPES = [(1024, 1024), (6144, 4096), (4096, 12288), (151936, 1024), (100, 200)]
"""(outputs, inputs) of some weights; the last one has no side that fits."""


def draw_weight(dtype: torch.dtype, num_outputs: int, num_inputs: int) -> torch.Tensor:
    torch.manual_seed(num_outputs)
    weight = torch.randn(num_outputs, num_inputs, device=CUDA) * num_inputs**-0.5
    return weight.to(dtype)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
def test_products_equal_float64(dtype: torch.dtype, shape: tuple[int, int]) -> None:
    weight = draw_weight(dtype, *shape)
    bias = torch.randn(shape[0], device=CUDA).to(dtype)
    for num_rows in (1, 7, 64, 300):
        x = torch.randn(num_rows, shape[1], device=CUDA).to(dtype)
        expected = tile_matmul_oracle(x, weight, bias)
        torch.testing.assert_close(tile_matmul(x, weight, bias), expected, **TOLERANCES[dtype])


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
def test_a_row_has_the_same_bits_wherever_it_is(dtype: torch.dtype, shape: tuple[int, int]) -> None:
    """In batches of any size, at any place, beside anything."""
    dice = random.Random(shape[0])
    linear = TileLinear(draw_weight(dtype, *shape), None)
    rows = torch.randn(16, shape[1], device=CUDA).to(dtype)
    alone = torch.cat([linear(row[None]) for row in rows])
    for _ in range(50):
        num_rows = dice.choice([1, 2, 3, 16, 17, 63, 64, 65, 200, 513])
        x = torch.randn(num_rows, shape[1], device=CUDA).to(dtype)
        place, which = dice.randrange(num_rows), dice.randrange(16)
        x[place] = rows[which]
        assert torch.equal(linear(x)[place], alone[which]), (num_rows, place)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_wider_tiles_of_the_same_depth_give_the_same_bits(dtype: torch.dtype) -> None:
    """Nothing depends on it yet. Where it holds, steps of many tokens may have wider tiles."""
    weight = draw_weight(dtype, 4096, 4096)
    x = torch.randn(300, 4096, device=CUDA).to(dtype)
    expected = tile_matmul(x, weight)
    for rows, columns, num_warps in ((64, 128, 4), (128, 128, 8), (128, 256, 8)):
        tile = Tile(rows, columns, depth=64, num_stages=3, num_warps=num_warps)
        assert torch.equal(tile_matmul(x, weight, tile=tile), expected), tile


@pytest.fixture(scope="module")
def prepare(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Case]:
    """Make a cell and its solo answers the first time an architecture is asked for."""

    @functools.cache
    def make(name: str, dtype: str, kv_cache_dtype: str = "auto") -> Case:
        folder = tmp_path_factory.mktemp("exact") / name
        cell = ExactCell(
            make_checkpoint(folder, vocab=VOCAB, layers=3, **CHECKPOINTS[name]),
            dtype,
            device="cuda",
            attention_backend="triton",
            linear_backend="fixed-tile",
            kv_cache_dtype=kv_cache_dtype,
        )
        assert cell.replica.model_runner.backend.is_exact
        requests = draw_requests(len(name))
        alone = [cell.run([request], SOLO)[0] for request in requests]
        return cell, requests, alone

    return make


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("name", sorted(CHECKPOINTS))
def test_batches_equal_requests_alone(prepare: Callable[..., Case], name: str, dtype: str) -> None:
    """Tokens and log-probabilities, without any tolerance."""
    check(prepare(name, dtype))


def test_a_cache_of_eight_bits_is_exact_too(prepare: Callable[..., Case]) -> None:
    if torch.cuda.get_device_capability() < LEAST_CAPABILITY:
        pytest.skip("this device has no 8-bit floats")
    check(prepare("qwen3", "bfloat16", "fp8_e4m3"))


def check(case: Case) -> None:
    check_batches(case, 25, seed=1)
    cell = case[0]
    assert cell.num_preemptions > 0
    assert cell.num_deaths > 0
    assert cell.num_cached_tokens > 0
