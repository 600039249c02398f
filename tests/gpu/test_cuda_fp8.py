"""8-bit floats on a CUDA device: layers, and models with such weights, caches, or both."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from pagewire_worker.backend.sampled_tokens import SampledTokens
from pagewire_worker.layers.fp8 import LEAST_CAPABILITY
from pagewire_worker.layers.fp8_linear import Fp8Linear
from pagewire_worker.triton_kernels.quantize_rows import quantize_rows
from support.cells.worker_driver import GREEDY, Driver, Running, load
from support.checkpoints.checkpoints import make_checkpoint
from support.oracles.kernels import quantize_rows_oracle

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(500)]

CUDA = torch.device("cuda")
TOLERANCES = {torch.float16: 4e-3, torch.bfloat16: 3e-2}
NUM_EXACT_INPUTS = 1024
"""Partial sums of the tensor cores have 14 bits: with more inputs than these, errors add up."""


@pytest.fixture(autouse=True)
def has_them() -> None:
    if torch.cuda.get_device_capability() < LEAST_CAPABILITY:
        pytest.skip("this device has no 8-bit floats")


@pytest.mark.parametrize("dtype", [torch.float32, *TOLERANCES], ids=str)
@pytest.mark.parametrize("size", [16, 1000, 4096, 12288, 28672])
def test_quantized_rows_equal_torch(dtype: torch.dtype, size: int) -> None:
    """But for numbers between two: a device divides to 2 units in the last place."""
    torch.manual_seed(size)
    x = torch.randn(70, size, device=CUDA).to(dtype)
    x[3] = 0
    quantized, scales = quantize_rows(x)
    expected, expected_scales = quantize_rows_oracle(x)
    torch.testing.assert_close(scales, expected_scales, rtol=1e-6, atol=0)
    is_other = quantized.float() != expected.float()
    assert is_other.float().mean() < 1e-3
    torch.testing.assert_close(quantized.float(), expected.float(), rtol=0.13, atol=2**-9)


def widened(x: Tensor) -> Tensor:
    quantized, scales = quantize_rows(x)
    return quantized.double() * scales.double()


@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("shape", [(1024, 1024), (6144, 4096), (4096, 12288), (48, 80)], ids=str)
def test_layers_are_products_of_what_was_quantized(
    shape: tuple[int, int], dtype: torch.dtype, has_bias: bool
) -> None:
    """For any number of rows, one too: scales of a single row might be taken for one of all."""
    torch.manual_seed(shape[0])
    spread = 10.0 ** torch.randint(-2, 1, (shape[0], 1), device=CUDA)
    weight = (torch.randn(*shape, device=CUDA) * spread * shape[1] ** -0.5).to(dtype)
    bias = torch.randn(shape[0], device=CUDA).to(dtype) if has_bias else None
    linear = Fp8Linear(weight, bias)
    wide = widened(weight)
    for num_rows in (1, 2, 7, 16, 17, 64, 300):
        x = torch.randn(num_rows, shape[1], device=CUDA).to(dtype)
        expected = widened(x) @ wide.T + (0 if bias is None else bias.double())
        tolerance = max(TOLERANCES[dtype], 4e-6 * max(shape[1] - NUM_EXACT_INPUTS, 0))
        torch.testing.assert_close(linear(x).double(), expected, rtol=tolerance, atol=tolerance)


def test_a_layer_is_captured_in_a_graph() -> None:
    linear = Fp8Linear(torch.randn(64, 128, device=CUDA).bfloat16(), None)
    x = torch.randn(4, 128, device=CUDA).bfloat16()
    linear(x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        product = linear(x)
    x.copy_(torch.randn(4, 128, device=CUDA))
    graph.replay()
    assert torch.equal(product, linear(x))


@pytest.fixture
def logits_of(tmp_path: Path) -> Callable[..., Tensor]:
    """Return a function that gives logits of a prompt in chunks, and of fixed tokens after it."""
    folder = make_checkpoint(tmp_path, architecture="Qwen3ForCausalLM", head_dim=32)
    dice = random.Random(5)
    prompt = [dice.randrange(512) for _ in range(300)]

    def run(**settings: str) -> Tensor:
        replica = load(folder, device="cuda", dtype="bfloat16", max_model_len=512, **settings)
        one, backend = Driver.of(replica), replica.model_runner.backend
        steps: list[Tensor] = []
        logits = backend.logits

        def greedy(hidden: Tensor, *_: object) -> SampledTokens:
            steps.extend(logits(hidden))
            return SampledTokens(torch.full((len(hidden),), len(steps) + 40, device=CUDA))

        backend.greedy = greedy  # type: ignore[method-assign]
        sequence = Running(slot=1, prompt=prompt, sampling=GREEDY, max_tokens=4)
        while len(sequence.output) < 4:
            one.step([sequence], budget=128)
        return torch.stack(steps)

    return run


@pytest.mark.parametrize(
    "settings",
    [
        {"quantization": "fp8"},
        {"quantization": "fp8", "attention_backend": "triton"},
        {"kv_cache_dtype": "fp8_e4m3", "attention_backend": "triton"},
        {"quantization": "fp8", "kv_cache_dtype": "fp8_e4m3", "attention_backend": "triton"},
    ],
    ids=str,
)
def test_logits_stay_close(settings: dict[str, str], logits_of: Callable[..., Tensor]) -> None:
    """As close as the same rounding is on a CPU: 0.94 to 0.99 for this checkpoint."""
    expected, found = logits_of(), logits_of(**settings)
    assert not torch.equal(found, expected)
    for one, other in zip(found, expected, strict=True):
        assert torch.corrcoef(torch.stack((one, other)))[0, 1] > 0.9
