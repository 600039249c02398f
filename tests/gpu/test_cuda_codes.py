"""Matrices of codes and of int8 on a CUDA device: products, their bits, and quantized models."""

import random
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from pagewire_worker.backend.sampled_tokens import SampledTokens
from pagewire_worker.checkpoint.coded_matrix import CodedMatrix, Offset, of_unsigned
from pagewire_worker.layers.code_linear import CodeLinear
from pagewire_worker.layers.int8_linear import Int8Linear
from pagewire_worker.triton_kernels.quantize_rows import quantize_rows
from support.cells.worker_driver import GREEDY, Driver, Running, load
from support.oracles.kernels import tile_matmul_oracle

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(500)]

CUDA = torch.device("cuda")
FOLDER = Path(__file__).parents[1] / "support" / "quantized"
FORMATS = sorted(folder.parent.name for folder in FOLDER.glob("*/config.json"))
TOKENS = [(7 * position + 3) % 128 for position in range(24)]
TOLERANCES = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}
OUTPUTS, INPUTS = 1000, 4096
FORMS = {
    "w4a16": (4, 128, "none"),
    "awq": (4, 128, "zero points"),
    "q4_k": (4, 32, "minima"),
    "nf4": (4, 64, "table"),
    "w8a16": (8, INPUTS, "none"),
    "gptq-8": (8, 128, "zero points"),
    "q6_k": (8, 16, "none"),
}
"""Bits, group, and what else a form has."""


def coded(form: str) -> CodedMatrix:
    """Return random codes."""
    bits, group, more = FORMS[form]
    torch.manual_seed(group)
    codes = torch.randint(0, 2**bits, (OUTPUTS, INPUTS), dtype=torch.uint8)
    shape = (OUTPUTS, INPUTS // group)
    scales = (torch.rand(shape) + 0.5).mul(2.0**-bits * INPUTS**-0.5).half()
    zeros = torch.randint(0, 2**bits, shape) if more == "zero points" else None
    matrix = of_unsigned(codes, bits, scales, zeros)
    if more == "table":
        return replace(matrix, table=torch.randn(16).sort().values)
    if more == "minima":
        return replace(matrix, offsets=-4 * scales, offset=Offset.MINIMUM)
    return matrix


def layer(matrix: CodedMatrix, bias: Tensor | None, dtype: torch.dtype) -> CodeLinear:
    linear = CodeLinear.of(matrix, bias, CUDA, dtype)
    assert linear is not None
    return linear


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("form", FORMS)
def test_products_equal_float64(form: str, dtype: torch.dtype) -> None:
    matrix = coded(form)
    bias = torch.randn(OUTPUTS, device=CUDA).to(dtype)
    linear, weight = layer(matrix, bias, dtype), matrix.dense().to(CUDA).double()
    for num_rows in (1, 7, 64, 300):
        x = torch.randn(num_rows, INPUTS, device=CUDA).to(dtype)
        expected = tile_matmul_oracle(x, weight, bias)
        tolerance = TOLERANCES[dtype]
        torch.testing.assert_close(linear(x), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("form", FORMS)
def test_a_row_has_the_same_bits_wherever_it_is(form: str, dtype: torch.dtype) -> None:
    """In batches of any size, at any place, beside anything."""
    check_bits(layer(coded(form), None, dtype), dtype)


def check_bits(linear: CodeLinear | Int8Linear, dtype: torch.dtype) -> None:
    dice = random.Random(3)
    rows = torch.randn(16, INPUTS, device=CUDA).to(dtype)
    alone = torch.cat([linear(row[None]) for row in rows])
    for _ in range(30):
        num_rows = dice.choice([1, 2, 3, 16, 17, 63, 64, 65, 200, 513])
        x = torch.randn(num_rows, INPUTS, device=CUDA).to(dtype)
        place, which = dice.randrange(num_rows), dice.randrange(16)
        x[place] = rows[which]
        assert torch.equal(linear(x)[place], alone[which]), (num_rows, place)


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
def test_layers_of_int8_are_products_of_what_was_quantized(dtype: torch.dtype) -> None:
    weight = (torch.randn(OUTPUTS, INPUTS, device=CUDA) * INPUTS**-0.5).to(dtype)
    linear = Int8Linear.quantized(weight, None)
    wide = widened(weight)
    for num_rows in (1, 17, 300):
        x = torch.randn(num_rows, INPUTS, device=CUDA).to(dtype)
        tolerance = TOLERANCES[dtype]
        expected = widened(x) @ wide.T
        torch.testing.assert_close(linear(x).double(), expected, rtol=tolerance, atol=tolerance)
    check_bits(linear, dtype)


def widened(x: Tensor) -> Tensor:
    quantized, scales = quantize_rows(x, torch.int8)
    return quantized.double() * scales.double()


def test_a_layer_is_captured_in_a_graph() -> None:
    linear = layer(coded("awq"), None, torch.bfloat16)
    x = torch.randn(4, INPUTS, device=CUDA).bfloat16()
    linear(x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        product = linear(x)
    x.copy_(torch.randn(4, INPUTS, device=CUDA))
    graph.replay()
    assert torch.equal(product, linear(x))


@pytest.mark.parametrize("name", FORMATS)
def test_models_have_the_logits_of_the_libraries(name: str) -> None:
    """Of what the libraries of the formats wrote, float32."""
    expected = load_file(FOLDER / name / "expected.safetensors")["logits"]
    settings = {"attention_backend": "triton", "linear_backend": "fixed-tile"}
    one = Driver.of(load(FOLDER / name, device="cuda", dtype="float32", **settings))
    backend, rows = one.model_runner.backend, []

    def noted(hidden: Tensor, *_: object) -> SampledTokens:
        rows.append(backend.logits(hidden).cpu())
        return SampledTokens(rows[-1].argmax(dim=1).to(CUDA))

    backend.greedy = noted  # type: ignore[method-assign]
    for length in range(1, len(TOKENS) + 1):
        prompt = TOKENS[:length]
        one.finish([Running(slot=0, prompt=prompt, sampling=GREEDY, max_tokens=1)], budget=64)
    found, scale = torch.cat(rows), float(expected.abs().max())
    torch.testing.assert_close(found, expected, atol=1e-5 * scale, rtol=1e-3)
