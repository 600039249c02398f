"""GPTQ with groups in no order on the kernels for CPUs: codes stay, and inputs are put in order."""

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from unit.worker.checkpoint.test_stored_golden import FOLDER, assert_same, logits_of

from pagewire_worker.cpu_kernels import abi
from pagewire_worker.cpu_kernels.backend import FusedBackend
from pagewire_worker.cpu_kernels.packed_layers import FusedMlp
from support.cells.worker_driver import Driver, load
from support.kernels.fused_kernels import needs_kernels

pytestmark = needs_kernels

Tensors = dict[str, torch.Tensor]


def one_order_per_input(tensors: Tensors) -> None:
    """As GPTQ writes it: the order comes of the inputs, which queries, keys and values share."""
    for layer in range(2):
        stem = f"model.layers.{layer}"
        for part in ("k", "v"):
            order = tensors[f"{stem}.self_attn.q_proj.g_idx"].clone()
            tensors[f"{stem}.self_attn.{part}_proj.g_idx"] = order
        order = tensors[f"{stem}.mlp.gate_proj.g_idx"].clone()
        tensors[f"{stem}.mlp.up_proj.g_idx"] = order


@pytest.fixture
def ordered(tmp_path: Path) -> Path:
    """A checkpoint all of whose matrices keep their codes."""
    folder = tmp_path / "ordered"
    shutil.copytree(FOLDER / "gptq-4-order", folder)
    tensors = load_file(folder / "model.safetensors")
    one_order_per_input(tensors)
    save_file(tensors, folder / "model.safetensors")
    return folder


def kinds_of(driver: Driver) -> list[int]:
    """Return the storage of the matrices of layers: of attention and MLP."""
    backend = driver.model_runner.backend
    assert isinstance(backend, FusedBackend)
    found = []
    for layer in backend.decoder.layers:
        assert isinstance(layer.mlp, FusedMlp)
        for linear in layer.linears:
            assert (linear.order is not None) == (linear.storage.kind == abi.CODES4)
            found.append(linear.storage.kind)
    return found


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_token_has_the_same_bits_alone_and_among_others(
    dtype: str, ordered: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Driver.of(load(ordered, cpu_backend="fused", dtype=dtype))
    assert kinds_of(one) == [abi.CODES4] * 8
    together = logits_of(one, (2, 24, 5, 9), monkeypatch, max_tokens=3)
    for place, length in enumerate((2, 24, 5, 9)):
        alone = logits_of(one, (length,), monkeypatch, max_tokens=3)
        assert torch.equal(together[place::4], alone)
    if dtype == "float32":
        dense = Driver.of(load(ordered, cpu_backend="torch", dtype=dtype))
        assert_same(together, logits_of(dense, (2, 24, 5, 9), monkeypatch, max_tokens=3))


def test_parts_with_orders_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Queries, keys and values are three matrices. Panels of gate and up alternate: values."""
    one, dense = (
        Driver.of(load(FOLDER / "gptq-4-order", cpu_backend=backend, dtype="float32"))
        for backend in ("fused", "torch")
    )
    assert kinds_of(one) == [*[abi.CODES4] * 4, abi.FLOAT32, abi.CODES4] * 2
    assert "split" in one.model_runner.backend.kernel_set
    found, expected = (logits_of(each, (2, 24, 5), monkeypatch) for each in (one, dense))
    assert_same(found, expected)


def test_an_output_layer_in_no_order(ordered: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The greedy token comes of another kernel than the logits."""
    tensors = load_file(ordered / "model.safetensors")
    for name in ("qweight", "qzeros", "scales", "g_idx"):
        part = tensors[f"model.layers.0.self_attn.q_proj.{name}"].clone()
        tensors[f"lm_head.{name}"] = part
    del tensors["lm_head.weight"]
    save_file(tensors, ordered / "model.safetensors")
    fused, dense = (
        Driver.of(load(ordered, cpu_backend=backend, dtype="float32"))
        for backend in ("fused", "torch")
    )
    prompts = [[3, 9, 100, 44], [7] * 20]
    assert fused.generate(prompts, max_tokens=8) == dense.generate(prompts, max_tokens=8)
    assert_same(logits_of(fused, (6,), monkeypatch), logits_of(dense, (6,), monkeypatch))
