"""Layers of int8 on the kernels for CUDA: what they compute, whose codes they use, and where they
are refused. In Triton's interpreter."""

import random
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from pagewire_shared.errors import StartupError
from pagewire_worker.checkpoint.coded_matrix import of_unsigned
from pagewire_worker.layers.int8_linear import Int8Linear
from support.cells.worker_driver import Driver, load
from support.oracles.kernels import quantize_rows_oracle

pytestmark = pytest.mark.usefixtures("poisoned_kernels")

CPU = torch.device("cpu")
QUANTIZED = Path(__file__).parents[3] / "support" / "quantized"
SMALL = {
    "attention_backend": "triton",
    "quantization": "int8",
    "max_num_batched_tokens": 8,
    "max_num_seqs": 2,
    "max_model_len": 32,
}


def widened(x):
    """What is left of `x` in int8, in float64."""
    quantized, scales = quantize_rows_oracle(x, torch.int8)
    return quantized.double() * scales.double()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("seed", range(4))
def test_a_layer_is_the_product_of_what_was_quantized(seed, dtype):
    torch.manual_seed(seed)
    dice = random.Random(seed)
    num_rows, num_inputs, num_outputs = dice.choice([1, 5, 17]), dice.choice([16, 100]), 20
    # Rows and outputs of very different size: one scale for all would lose the small ones.
    x = (torch.randn(num_rows, num_inputs) * 10.0 ** torch.randint(-2, 3, (num_rows, 1))).to(dtype)
    weight = torch.randn(num_outputs, num_inputs) * 10.0 ** torch.randint(-2, 1, (num_outputs, 1))
    bias = torch.randn(num_outputs).to(dtype) if seed % 2 else None
    linear = Int8Linear.quantized(weight.to(dtype), bias)
    expected = widened(x) @ widened(weight.to(dtype)).T + (0 if bias is None else bias.double())
    together = linear(x)
    torch.testing.assert_close(together.double(), expected, rtol=2e-3, atol=2e-3)
    assert torch.equal(linear(x[-1:]), together[-1:])


def test_int8_of_a_checkpoint_are_used_as_they_are():
    codes = torch.randint(100, 156, (20, 32), dtype=torch.uint8)
    # By inputs, as formats that pack along the outputs unpack them.
    matrix = of_unsigned(codes.T.contiguous().T, 8, torch.rand(20, 1), None)
    linear = Int8Linear.of(matrix, None, CPU, torch.float32)
    x = torch.randn(3, 32)
    expected = widened(x) @ matrix.dense().double().T
    torch.testing.assert_close(linear(x).double(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("bits", "groups", "zeros"), [(4, 1, None), (8, 2, None), (8, 1, torch.zeros(20, 1))]
)
def test_other_codes_are_not(bits, groups, zeros):
    codes = torch.zeros((20, 32), dtype=torch.uint8)
    matrix = of_unsigned(codes, bits, torch.rand(20, groups), zeros)
    assert Int8Linear.of(matrix, None, CPU, torch.float32) is None


PROMPTS = [[17, 24], [3, 10, 17, 24, 31]]
"""The second one is the beginning of the tokens whose logits are known."""


@pytest.mark.parametrize(("backend", "is_exact"), [("fixed-tile", True), ("torch", False)])
def test_a_checkpoint_of_int8_keeps_them(backend, is_exact, caplog):
    caplog.set_level("INFO", logger="pagewire_worker")
    one = Driver.of(load(QUANTIZED / "w8a8", linear_backend=backend, **SMALL))
    used = one.model_runner.backend
    assert "8 matrices keep the codes of the checkpoint, 0 are values" in caplog.text
    assert used.kernel_set.endswith(f"linear=int8-tile+{backend}+stored")
    assert used.is_exact is is_exact
    if is_exact:
        together = one.generate(PROMPTS, max_tokens=2, budget=8)
        assert [one.generate([p], max_tokens=2, budget=8)[0] for p in PROMPTS] == together


def test_other_weights_are_quantized_and_stay_close(monkeypatch):
    """Of 4 bits here, which are no int8 with a scale per output."""
    one = Driver.of(load(QUANTIZED / "awq", linear_backend="torch", **SMALL))
    backend, rows = one.model_runner.backend, []
    assert backend.kernel_set.endswith("linear=int8-tile+torch")
    logits = backend.logits
    monkeypatch.setattr(backend, "logits", lambda *given: rows.append(logits(*given)) or rows[-1])
    one.generate(PROMPTS[1:], max_tokens=1, budget=8)
    [found], expected = rows[-1], load_file(QUANTIZED / "awq" / "expected.safetensors")["logits"]
    assert not torch.allclose(found, expected[4], rtol=1e-3)
    assert torch.corrcoef(torch.stack((found, expected[4])))[0, 1] > 0.99


@pytest.mark.parametrize("attention", ["sdpa", "reference"])
def test_attention_of_torch_has_no_layers_of_int8(attention, checkpoint):
    settings = {**SMALL, "attention_backend": attention, "device": "cpu"}
    with pytest.raises(StartupError) as refusal:
        load(checkpoint("llama"), **settings)
    assert refusal.value.field == "quantization"
    assert "--quantization: int8 needs the kernels for CPUs" in refusal.value.message
