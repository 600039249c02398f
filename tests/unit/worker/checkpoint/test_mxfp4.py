"""Experts in MXFP4 are the values that transformers makes of them, and stay codes on CPUs."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoModelForCausalLM
from transformers.integrations.mxfp4 import convert_moe_packed_tensors
from unit.worker.models.test_experts import states_of

from pagewire_shared.errors import StartupError
from pagewire_worker.checkpoint.coded_matrix import CodedMatrix
from pagewire_worker.checkpoint.expert_stacks import ExpertStacks
from pagewire_worker.checkpoint.stored.mxfp4 import Mxfp4Format
from pagewire_worker.checkpoint.stored.reader import StoredReader
from pagewire_worker.checkpoint.weights import SafetensorsReader
from pagewire_worker.cpu_kernels import abi
from support.cells.worker_driver import load
from support.checkpoints.fallback_checkpoints import VOCAB
from support.kernels.fused_kernels import needs_kernels
from support.oracles.family_checkpoints import MAX_POSITIONS
from support.oracles.mxfp4_checkpoints import make_mxfp4_checkpoints
from support.poison import poisoned

EXPERTS = "model.layers.1.mlp.experts"
Tensors = dict[str, Tensor]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    torch.set_num_threads(1)
    return make_mxfp4_checkpoints(tmp_path_factory.mktemp("mxfp4"))


def prompts_of(*sizes: int) -> list[list[int]]:
    generator = random.Random(1)
    return [[generator.randrange(3, VOCAB) for _ in range(size)] for size in sizes]


def reader_of(folder: Path, count: int) -> StoredReader:
    cpu, names = torch.device("cpu"), ExpertStacks(count)
    tensors = SafetensorsReader(folder, cpu, torch.float32, names=names)
    return StoredReader(tensors, Mxfp4Format(), cpu, torch.float32)


def test_every_byte_stands_for_what_transformers_says(tmp_path: Path) -> None:
    """All pairs of codes, and all scales but the one that is no number."""
    blocks = torch.arange(256, dtype=torch.uint8).view(1, 2, 8, 16).repeat(4, 16, 1, 1)
    scales = torch.arange(4 * 32 * 8).remainder(255).to(torch.uint8).view(4, 32, 8)
    stored = {
        "experts.gate_up_proj_blocks": blocks,
        "experts.gate_up_proj_scales": scales,
        "experts.gate_up_proj_bias": torch.randn(4, 32),
    }
    stored = {f"a.{name}": tensor for name, tensor in stored.items()}
    save_file(stored, tmp_path / "model.safetensors")
    expected = convert_moe_packed_tensors(blocks, scales, dtype=torch.float32)
    reader = reader_of(tmp_path, 4)
    for number in range(4):
        for first, part in enumerate(("gate_proj", "up_proj")):
            name = f"a.experts.{number}.{part}"
            found = reader.take(f"{name}.weight", (16, 256))
            assert torch.equal(found, expected[number].T[first::2])
            bias = reader.take(f"{name}.bias", (16,))
            assert torch.equal(bias, stored["a.experts.gate_up_proj_bias"][number, first::2])
    reader.finish()


@needs_kernels
@pytest.mark.parametrize("way", ["fused", "torch", pytest.param("triton", marks=pytest.mark.long)])
@torch.inference_mode()
def test_logits_are_those_of_the_dequantized_model(made: tuple[Path, Path], way: str) -> None:
    packed, plain = made
    prompts = prompts_of(9 if way == "triton" else 70)
    if way == "triton":
        with poisoned():
            (found,) = states_of(packed, prompts, 96, attention_backend="triton")
    else:
        (found,) = states_of(packed, prompts, 96, cpu_backend=way)
    model: Any = AutoModelForCausalLM.from_pretrained(
        plain, dtype=torch.float32, attn_implementation="eager"
    )
    expected = model.eval()(torch.tensor(prompts), use_cache=False).logits[0, -1:]
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


@needs_kernels
@torch.inference_mode()
def test_codes_stay_codes_on_cpus_and_are_exact(made: tuple[Path, Path]) -> None:
    """Alone, in chunks and beside others: few rows of an expert, and many, which are widened."""
    prompts = prompts_of(250, 90, 3)
    settings = {"dtype": "bfloat16", "cpu_backend": "fused"}
    alone = [states_of(made[0], [one], 400, **settings)[-1] for one in prompts]
    in_chunks = states_of(made[0], [prompts[0]], 7, **settings)[-1]
    together = states_of(made[0], prompts, 400, **settings)[0]
    assert torch.equal(in_chunks, alone[0])
    assert torch.equal(together, torch.cat(alone))
    replica = load(made[0], max_model_len=MAX_POSITIONS, **settings)
    layers = replica.model_runner.backend._decoder.layers
    storages = [one.storage for layer in layers for one in layer.expert_linears]
    assert {(one.kind, one.group, one.form.scale_type) for one in storages} == {
        (abi.CODES4, 32, abi.SCALE_BFLOAT16)
    }


def without(end: str) -> Callable[[Tensors], None]:
    def edit(tensors: Tensors) -> None:
        del tensors[f"{EXPERTS}.{end}"]

    return edit


def changed(end: str, change: Callable[[Tensor], Tensor]) -> Callable[[Tensors], None]:
    def edit(tensors: Tensors) -> None:
        tensors[f"{EXPERTS}.{end}"] = change(tensors[f"{EXPERTS}.{end}"]).contiguous()

    return edit


@pytest.mark.parametrize(
    ("edit", "text"),
    [
        (without("down_proj_scales"), "lacks the tensor model.layers.1.mlp.experts.0.down_proj"),
        (without("gate_up_proj_bias"), "lacks the tensor model.layers.1.mlp.experts.0.gate_proj"),
        (
            changed("down_proj_bias", lambda one: one[:3]),
            "experts.down_proj_bias has shape [3, 64], config.json asks for 6 experts in 2 dim",
        ),
        (changed("gate_up_proj_blocks", lambda one: one.flatten(2)), "asks for 6 experts in 4 dim"),
        (changed("down_proj_blocks", lambda one: one[:, :9]), "down_proj.blocks has shape [9, 2,"),
        (changed("down_proj_scales", lambda one: one[:, :, :1]), "scales has shape [64, 1]"),
        (changed("down_proj_scales", Tensor.float), "has type torch.float32, MXFP4 asks for bytes"),
    ],
)
def test_what_does_not_fit_is_named(
    made: tuple[Path, Path], tmp_path: Path, edit: Callable[[Tensors], None], text: str
) -> None:
    tensors = load_file(made[0] / "model.safetensors")
    edit(tensors)
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text((made[0] / "config.json").read_text())
    with pytest.raises(StartupError) as caught:
        load(tmp_path, max_model_len=MAX_POSITIONS, cpu_backend="torch")
    assert text in caught.value.message
    assert "\n" not in caught.value.message


def test_a_matrix_of_values_beside_blocks_is_read(made: tuple[Path, Path]) -> None:
    """A checkpoint may leave experts as they were."""
    reader = reader_of(made[1], 6)
    name, expected = f"{EXPERTS}.2.down_proj.weight", load_file(made[1] / "model.safetensors")
    with reader.borrow_matrix(name, (64, 64)) as found:
        assert not isinstance(found, CodedMatrix)
        assert torch.equal(found, expected[f"{EXPERTS}.down_proj"][2].T)
