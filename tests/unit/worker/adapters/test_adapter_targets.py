"""Which matrices adapters may change, by family, and the refusals by name."""

from pathlib import Path

import pytest

from pagewire_shared.adapters.model_shapes import own_module
from pagewire_shared.errors import StartupError
from pagewire_worker.adapters.targets import AdapterTargets
from pagewire_worker.models.registry import read_plan
from support.adapters.model_adapters import make_adapter
from support.cells.worker_driver import GREEDY, Driver, Running, load
from support.checkpoints.fallback_checkpoints import make_fallback_checkpoint
from support.oracles.family_checkpoints import SHAPE, make_family_checkpoint

SETTINGS = {"enable_lora": True, "max_loras": 1, "model_impl": "native"}


def targets_of(folder: Path, name: str) -> AdapterTargets:
    return AdapterTargets(read_plan(make_family_checkpoint(folder, name)))


def test_names_of_dense_families(tmp_path: Path) -> None:
    names = targets_of(tmp_path, "phi3").names
    assert {one.rpartition(".")[2] for one in names} == {
        *("qkv_proj", "o_proj", "gate_up_proj", "down_proj", "embed_tokens", "lm_head"),
    }
    nested = "model.language_model.layers.1.self_attn.k_proj"
    assert own_module(nested) in targets_of(tmp_path, "gemma2").names


def test_shared_experts_have_adapters(tmp_path: Path) -> None:
    names = targets_of(tmp_path, "qwen2-moe").names
    shared = {one.rpartition(".")[2] for one in names if ".shared_expert." in one}
    assert shared == {"gate_proj", "up_proj", "down_proj"}


def test_experts_of_a_router_have_adapters(tmp_path: Path) -> None:
    targets = targets_of(tmp_path, "mixtral")
    routed = {one for one in targets.names if ".experts." in one}
    assert len(routed) == 2 * 6 * 3
    assert "model.layers.1.block_sparse_moe.experts.5.w2" in routed
    assert all(targets.linears[targets.names[one][0]].is_routed for one in routed)


@pytest.mark.parametrize(
    ("name", "module", "text"),
    [
        ("qwen3-moe", "model.layers.0.mlp.experts.18.up_proj", "no such expert"),
        ("qwen3-moe", "model.layers.0.mlp.experts.base_layer", "target_parameters name none"),
        ("qwen3-moe", "model.layers.0.mlp.gate", "adapters of routers"),
        ("qwen2-moe", "model.layers.0.mlp.shared_expert_gate", "adapters of routers"),
        ("deepseek-v3", "model.layers.0.self_attn.kv_b_proj", "adapters of latent attention"),
        ("gemma2", "model.layers.0.mlp.gate", "no matrix of this name"),
        ("gemma2", "embed_tokens", "no matrix of this name"),
    ],
)
def test_matrices_that_are_refused(tmp_path: Path, name: str, module: str, text: str) -> None:
    shapes = targets_of(tmp_path, name).shapes
    assert shapes.find(module) is None
    assert text in shapes.reason(module)


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
