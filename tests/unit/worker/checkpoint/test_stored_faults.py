"""Quantized checkpoints that do not fit their format, and variants that no library here writes."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from unit.worker.checkpoint.test_stored_golden import logits_of

from pagewire_shared.errors import StartupError
from pagewire_shared.model_files.quantization import check_quantization
from pagewire_shared.sampling.pooling import PoolingParams
from pagewire_worker.checkpoint.stored.formats import stored_format
from pagewire_worker.cpu_kernels import abi
from support.cells.worker_driver import GREEDY, Driver, Running, load
from support.checkpoints.encoder_checkpoints import make_encoder
from support.kernels.fused_kernels import needs_kernels

FOLDER = Path(__file__).parents[3] / "support" / "quantized"
LAYER = "model.layers.1.mlp.down_proj"
PROMPT = [5, 9, 100, 3, 44]
Tensors = dict[str, torch.Tensor]


@pytest.fixture
def changed(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that copies a checkpoint with other tensors and settings."""

    def change(name: str, edit: Callable[[Tensors], None], **settings: Any) -> Path:
        folder = tmp_path / name
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(FOLDER / name, folder)
        tensors = load_file(folder / "model.safetensors")
        edit(tensors)
        save_file(tensors, folder / "model.safetensors")
        config = json.loads((folder / "config.json").read_text())
        if settings:
            config["quantization_config"] = settings
        (folder / "config.json").write_text(json.dumps(config))
        return folder

    return change


def without(name: str) -> Callable[[Tensors], None]:
    def edit(tensors: Tensors) -> None:
        del tensors[f"{LAYER}.{name}"]

    return edit


def cut(name: str, rows: int) -> Callable[[Tensors], None]:
    def edit(tensors: Tensors) -> None:
        tensors[f"{LAYER}.{name}"] = tensors[f"{LAYER}.{name}"][:rows].clone()

    return edit


@pytest.mark.parametrize(
    ("name", "edit", "text"),
    [
        ("awq", without("scales"), f"lacks the tensor {LAYER}.scales"),
        ("awq", without("qweight"), f"lacks the tensor {LAYER}.weight"),
        ("awq", cut("qzeros", 1), f"{LAYER}.qzeros has shape [1, 8]"),
        ("awq", cut("qweight", 32), f"{LAYER}.qweight has shape [32, 8]"),
        ("gptq-4", without("qzeros"), f"lacks the tensor {LAYER}.qzeros"),
        ("gptq-4", cut("g_idx", 3), f"{LAYER}.g_idx has shape [3]"),
        ("gptq-4", cut("qweight", 5), "64 inputs in words leave a rest"),
        ("gptq-4", cut("qweight", 1), "has 0.5 bits per weight; 2, 4 and 8 are read"),
        ("w4a16", without("weight_shape"), f"lacks the tensor {LAYER}.weight_shape"),
        ("w4a16", cut("weight_scale", 3), f"{LAYER}.weight_scale has shape [3, 2]"),
        ("w8a8", without("weight_scale"), f"{LAYER}.weight has type torch.int8"),
        ("fp8-block", cut("weight_scale", 1), "ask for [2, 2]"),
        ("nf4", without("weight.absmax"), f"lacks the tensor {LAYER}.weight.absmax"),
        ("nf4", cut("weight", 9), f"{LAYER}.weight has shape [9, 1]"),
        ("int8", cut("SCB", 9), f"{LAYER}.SCB has shape [9]"),
    ],
)
def test_what_does_not_fit_is_named(
    name: str, edit: Callable[[Tensors], None], text: str, changed: Callable[..., Path]
) -> None:
    with pytest.raises(StartupError) as caught:
        load(changed(name, edit))
    assert text in caught.value.message
    assert "\n" not in caught.value.message


def test_groups_beyond_the_scales_are_named(changed: Callable[..., Path]) -> None:
    def edit(tensors: Tensors) -> None:
        tensors[f"{LAYER}.g_idx"][3] = 9

    with pytest.raises(StartupError, match="names groups beyond the 2 of its scales"):
        load(changed("gptq-4-order", edit))


def tokens_of(folder: Path, **settings: Any) -> list[int]:
    one = Driver.of(load(folder, **settings))
    return one.generate([PROMPT], max_tokens=12)[0]


def test_biases_of_zeros_and_scales_of_the_cache_are_left_out(
    changed: Callable[..., Path],
) -> None:
    expected = tokens_of(FOLDER / "gptq-4")

    def add(value: float) -> Callable[[Tensors], None]:
        def edit(tensors: Tensors) -> None:
            tensors[f"{LAYER}.bias"] = torch.full((64,), value)
            tensors["model.layers.0.self_attn.k_scale"] = torch.ones(1)
            tensors["model.layers.1.self_attn.v_proj.output_scale"] = torch.ones(1)

        return edit

    assert tokens_of(changed("gptq-4", add(0.0))) == expected
    with pytest.raises(StartupError, match=f"does not have: {LAYER}.bias"):
        load(changed("gptq-4", add(0.5)))


def renamed(old: str, new: str) -> Callable[[Tensors], None]:
    def edit(tensors: Tensors) -> None:
        for name in [name for name in tensors if name.endswith(f".{old}")]:
            tensors[name.removesuffix(old) + new] = tensors.pop(name)

    return edit


def test_names_of_other_writers_of_float8(changed: Callable[..., Path]) -> None:
    nothing = renamed("", "")
    tensor = tokens_of(FOLDER / "fp8-tensor")
    assert tokens_of(changed("fp8-tensor", nothing, quant_method="fp8")) == tensor
    block = tokens_of(FOLDER / "fp8-block")
    inverse = renamed("weight_scale", "weight_scale_inv")
    settings = {"quant_method": "fp8", "weight_block_size": [32, 32]}
    assert tokens_of(changed("fp8-block", inverse, **settings)) == block
    channel = tokens_of(FOLDER / "fp8-channel")
    assert tokens_of(changed("fp8-channel", nothing, quant_method="fbgemm_fp8")) == channel


def test_a_plain_layer_among_stored_ones_is_read(changed: Callable[..., Path]) -> None:
    def edit(tensors: Tensors) -> None:
        for name in ("qweight", "qzeros", "scales", "g_idx"):
            del tensors[f"{LAYER}.{name}"]
        tensors[f"{LAYER}.weight"] = torch.randn(64, 64) * 0.1

    assert len(tokens_of(changed("gptq-4", edit))) == 12


@pytest.mark.parametrize("quantization", ["int8", "int4"])
def test_stored_weights_are_packed_again(quantization: str) -> None:
    assert len(tokens_of(FOLDER / "awq", quantization=quantization)) == 12


@needs_kernels
def test_the_output_layer_alone_is_packed_as_int8(monkeypatch: pytest.MonkeyPatch) -> None:
    """Layers keep their codes."""
    one = Driver.of(load(FOLDER / "w4a16", quantization="int8-output"))
    plain = Driver.of(load(FOLDER / "w4a16"))
    decoder, other = (driver.model_runner.backend.decoder for driver in (one, plain))
    assert decoder.vocabulary.storage.kind == abi.INT8
    assert decoder.embedding.storage.kind == other.embedding.storage.kind == abi.FLOAT32
    assert {linear.storage.kind for linear in decoder.layers[0].linears} == {abi.CODES4}
    prompts = [PROMPT, PROMPT[:2]]
    found = one.generate(prompts, max_tokens=12)
    assert found == [one.generate([prompt], max_tokens=12)[0] for prompt in prompts]
    rows = [logits_of(driver, (5,), monkeypatch)[0] for driver in (one, plain)]
    assert not torch.equal(*rows)
    assert torch.corrcoef(torch.stack(rows))[0, 1] > 0.999


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({}, "an unknown method"),
        ({"quant_method": "nvfp4"}, "nvfp4, which is not read; awq, "),
        ({"quant_method": "awq", "bits": 8}, "awq with 8 bits is not read; 4 are"),
        ({"quant_method": "awq", "version": "gemv"}, "version 'gemv' is not read"),
        ({"quant_method": "awq", "zero_point": False}, "without zero points"),
        ({"quant_method": "gptq", "bits": 3}, "gptq with 3 bits is not read; 2, 4 and 8 are"),
        ({"quant_method": "gptq", "checkpoint_format": "marlin"}, "layout 'marlin'"),
        (
            {"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized"},
            "format 'nvfp4-pack-quantized'",
        ),
        (
            {"quant_method": "compressed-tensors", "sparsity_config": {"format": "sparse-24"}},
            "sparse weights",
        ),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"a": {"weights": {"num_bits": 6, "type": "int"}}},
            },
            "weights of 6 bits (int)",
        ),
        (
            {"quant_method": "fp8", "weight_block_size": [128]},
            "weight_block_size must be two sizes",
        ),
        (
            {"quant_method": "compressed-tensors", "config_groups": 5, "format": "x"},
            "the format 'x'",
        ),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"a": {"weights": {"strategy": "tensor_group"}}},
            },
            "a scale per tensor_group",
        ),
    ],
)
def test_settings_that_are_not_read_are_named(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(StartupError) as caught:
        check_quantization({"quantization_config": settings or {"x": 1}})
    assert text in caught.value.message
    assert caught.value.message.endswith("(quantization_config)")


@pytest.mark.parametrize("broken", ["x", {"a": 5}, {"a": {"weights": 5}}])
def test_settings_of_odd_shapes_end_in_no_traceback(broken: Any) -> None:
    settings = {"quant_method": "compressed-tensors", "config_groups": broken}
    assert stored_format({"quantization_config": settings}) is not None
    with pytest.raises(StartupError, match="an unknown method"):
        check_quantization({"quantization_config": broken})


def test_an_encoder_is_read_as_its_plain_twin(tmp_path: Path) -> None:
    """Weights that int8 holds exactly: both have the same vectors, bit for bit."""
    plain = make_encoder(tmp_path / "plain", "BertModel")
    tensors = load_file(plain / "model.safetensors")
    name = next(one for one in tensors if one.endswith("attention.output.dense.weight"))
    codes = torch.randint(-127, 128, tensors[name].shape, dtype=torch.int8)
    greatest = torch.full((len(codes),), 0.5)
    tensors[name] = codes.float() * (greatest / 127).unsqueeze(1)
    save_file(tensors, plain / "model.safetensors")
    stored = shutil.copytree(plain, tmp_path / "stored")
    tensors[name] = codes
    tensors[name.removesuffix("weight") + "SCB"] = greatest
    save_file(tensors, stored / "model.safetensors")
    config = json.loads((stored / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "bitsandbytes", "load_in_8bit": True}
    (stored / "config.json").write_text(json.dumps(config))
    vectors = [vector_of(folder) for folder in (plain, stored)]
    assert vectors[0].any()
    assert (vectors[0] == vectors[1]).all()


def vector_of(folder: Path) -> Any:
    one = Driver.of(load(folder, max_model_len=128))
    sequence = Running(0, PROMPT, GREEDY, 1, pooling=PoolingParams(pooling="mean", normalize=False))
    one.finish([sequence], budget=64)
    return sequence.vector
