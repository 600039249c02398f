"""Which matrices adapters may change, by family, and the refusals by name."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from pagewire_shared.adapters.adapter_error import AdapterError
from pagewire_shared.errors import StartupError
from pagewire_worker.adapters.targets import AdapterTargets
from pagewire_worker.models.registry import read_plan
from support.adapters.model_adapters import PREFIX, make_adapter
from support.cells.worker_driver import GREEDY, Driver, Running, load
from support.checkpoints.fallback_checkpoints import make_fallback_checkpoint
from support.oracles.family_checkpoints import SHAPE, make_family_checkpoint

SETTINGS = {"enable_lora": True, "max_loras": 1, "model_impl": "native"}


def targets_of(folder: Path, name: str) -> AdapterTargets:
    return AdapterTargets(read_plan(make_family_checkpoint(folder, name)))


def test_names_of_dense_families(tmp_path: Path) -> None:
    names = targets_of(tmp_path, "phi3").names
    assert {one.rpartition(".")[2] for one in names} == {
        *("qkv_proj", "o_proj", "gate_up_proj", "down_proj"),
    }
    nested = targets_of(tmp_path, "gemma2")
    plain = nested.place("model.layers.1.self_attn.k_proj")
    assert nested.place("model.language_model.layers.1.self_attn.k_proj") == plain


def test_shared_experts_have_adapters(tmp_path: Path) -> None:
    names = targets_of(tmp_path, "qwen2-moe").names
    shared = {one.rpartition(".")[2] for one in names if ".shared_expert." in one}
    assert shared == {"gate_proj", "up_proj", "down_proj"}
    assert not any(".experts." in one for one in names)


@pytest.mark.parametrize(
    ("name", "module", "text"),
    [
        ("qwen3-moe", "model.layers.0.mlp.experts.3.up_proj", "adapters of experts"),
        ("qwen2-moe", "model.layers.0.mlp.shared_expert_gate", "no matrix of this name"),
        ("deepseek-v3", "model.layers.0.self_attn.kv_b_proj", "adapters of latent attention"),
        ("gemma2", "model.layers.0.mlp.gate", "no matrix of this name"),
        ("gemma2", "lm_head", "no matrix of this name"),
    ],
)
def test_matrices_that_are_refused(tmp_path: Path, name: str, module: str, text: str) -> None:
    with pytest.raises(AdapterError, match=text) as caught:
        targets_of(tmp_path, name).place(module)
    assert caught.value.field == module


@pytest.mark.parametrize("way", ["auto", "torch"])
def test_attention_beside_experts(tmp_path: Path, way: str) -> None:
    folder = make_family_checkpoint(tmp_path, "qwen3-moe")
    adapter = make_adapter(tmp_path / "adapter", folder, scale=1.0)
    replica = load(folder, cpu_backend=way, **SETTINGS)
    adapter.fill(replica.model_runner, 0)
    driver, prompt = Driver.of(replica), list(range(20, 40))
    both = [Running(slot, prompt, GREEDY, 6, adapter_slot=own) for slot, own in ((0, 0), (1, None))]
    driver.finish(both, budget=64)
    assert both[0].output != both[1].output
    assert (
        both[1].output
        == Driver.of(load(folder, cpu_backend=way)).generate([prompt], max_tokens=6)[0]
    )


def test_an_adapter_of_experts_is_one_error(tmp_path: Path) -> None:
    folder = make_family_checkpoint(tmp_path, "qwen3-moe")
    adapter = make_adapter(tmp_path / "adapter", folder, target_modules="all-linear")
    path = adapter.folder / "adapter_model.safetensors"
    extra = f"{PREFIX}model.layers.0.mlp.experts.0.up_proj"
    tensors = {
        f"{extra}.lora_A.weight": torch.ones(4, 64),
        f"{extra}.lora_B.weight": torch.ones(48, 4),
    }
    save_file(load_file(path) | tensors, path)
    replica = load(folder, **SETTINGS)
    with pytest.raises(AdapterError, match="adapters of experts"):
        adapter.fill(replica.model_runner, 0)
    assert replica.model_runner._adapters is not None
    assert not replica.model_runner._adapters.held


def test_models_of_transformers_take_none(tmp_path: Path) -> None:
    folder = make_fallback_checkpoint(tmp_path, "llama", SHAPE)
    with pytest.raises(StartupError, match="--enable-lora") as caught:
        load(folder, enable_lora=True, model_impl="transformers")
    assert caught.value.field == "enable_lora"


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"max_lora_rank": 257}, "max_lora_rank"),
        ({"max_lora_rank": 0}, "max_lora_rank"),
        ({"max_loras": 0}, "max_loras"),
        ({"max_loras": 8, "max_cpu_loras": 7}, "max_cpu_loras"),
    ],
)
def test_bad_settings(settings: dict[str, int], field: str) -> None:
    with pytest.raises(StartupError) as caught:
        load(Path("/nowhere"), **settings)
    assert caught.value.field == field
