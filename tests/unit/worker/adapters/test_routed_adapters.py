"""Adapters of experts that a router chooses: files that do not fit are refused by name, and a slot
has memory for them only while its adapter has some."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from pagewire_shared.adapters.adapter_error import AdapterError
from support.adapters.model_adapters import PREFIX, MadeAdapter, make_adapter
from support.cells.worker_driver import GREEDY, Driver, Running, load
from support.kernels.fused_kernels import needs_kernels
from support.oracles.family_checkpoints import make_family_checkpoint

SETTINGS: dict[str, Any] = {"enable_lora": True, "max_loras": 2, "model_impl": "native"}
EXPERT = f"{PREFIX}model.layers.1.mlp.experts"
Change = Callable[[dict[str, Tensor]], object]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_family_checkpoint(tmp_path_factory.mktemp("routed"), "qwen3-moe")


def changed(folder: Path, model: Path, change: Change, **config: Any) -> MadeAdapter:
    adapter = make_adapter(folder, model, routed=True, **config)
    path = folder / "adapter_model.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path)
    return adapter


def renamed(tensors: dict[str, Tensor], old: str, new: str) -> None:
    for end in ("lora_A.weight", "lora_B.weight"):
        tensors[f"{new}.{end}"] = tensors.pop(f"{old}.{end}")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        pytest.param(
            lambda one: renamed(one, f"{EXPERT}.3.up_proj", f"{EXPERT}.18.up_proj"),
            r"module model.layers.1.mlp.experts.18.up_proj: the model has no such expert",
            id="expert",
        ),
        pytest.param(
            lambda one: one.pop(f"{EXPERT}.3.up_proj.lora_B.weight"),
            r"experts.3.up_proj.lora_B.weight: it is missing",
            id="half",
        ),
        pytest.param(
            lambda one: one.update({f"{EXPERT}.3.up_proj.lora_B.weight": torch.ones(48, 5)}),
            r"experts.3.up_proj.lora_B.weight: shape \[48, 5\] does not fit rank 4",
            id="rank",
        ),
        pytest.param(
            lambda one: one.update({f"{EXPERT}.3.down_proj.lora_A.weight": torch.ones(4, 64)}),
            r"experts.3.down_proj.lora_A.weight has shape \[4, 64\].* takes \[4, 48\]",
            id="shape",
        ),
        pytest.param(
            lambda one: [one.pop(f"{EXPERT}.3.up_proj.lora_{half}.weight") for half in "AB"],
            r"lacks the tensors of model.layers.1.mlp.experts.3.up_proj",
            id="missing",
        ),
        pytest.param(
            lambda one: one[f"{EXPERT}.17.up_proj.lora_B.weight"].fill_(torch.inf),
            r"experts.17.up_proj.lora_B.weight: not all values are finite",
            id="infinite",
        ),
    ],
)
def test_files_that_do_not_fit(model: Path, change: Change, text: str, tmp_path: Path) -> None:
    adapter = changed(tmp_path, model, change)
    replica = load(model, **SETTINGS)
    with pytest.raises(AdapterError, match=text):
        adapter.fill(replica.model_runner, 0)
    assert replica.model_runner._adapters is not None
    assert not replica.model_runner._adapters.held


def test_adapters_of_some_experts(model: Path, tmp_path: Path) -> None:
    """Without any expert, as where a library keeps those of a layer in one tensor; and of one."""
    replica = load(model, **SETTINGS)
    names = ["q_proj", "up_proj"]
    none = make_adapter(tmp_path / "none", model, only=["q_proj"], target_modules=names)
    none.fill(replica.model_runner, 0)
    others = ("q_proj", "experts.3.up_proj")
    keep = [f"{EXPERT.replace('.1.', f'.{layer}.')}.3.up_proj" for layer in (0, 1)]
    one = changed(
        tmp_path / "one",
        model,
        lambda tensors: [
            tensors.pop(name)
            for name in [*tensors]
            if not name.startswith((*keep,)) and "q_proj" not in name
        ],
        target_modules=others,
    )
    one.fill(replica.model_runner, 1)


def test_a_slot_without_room_names_the_settings(model: Path, tmp_path: Path) -> None:
    adapter = make_adapter(tmp_path, model, routed=True)
    # Each of 2 layers * 18 experts has 3 matrices between 64 and 48 numbers, of rank 4.
    num_bytes = 2 * 18 * 3 * 4 * (64 + 48) * 4
    replica = load(model, **SETTINGS, lora_memory=2**20, dtype="float32")
    assert num_bytes < 2**19
    adapter.fill(replica.model_runner, 0)
    wide = make_adapter(tmp_path / "wide", model, rank=12, routed=True)
    text = f"take {3 * num_bytes} bytes of a slot, which has {2**19}: --lora-memory divided by"
    with pytest.raises(AdapterError, match=text):
        wide.fill(replica.model_runner, 0)


@pytest.mark.parametrize("way", [pytest.param("fused", marks=needs_kernels), "torch"])
def test_a_slot_changes_hands(way: str, model: Path, tmp_path: Path) -> None:
    """An adapter without experts leaves nothing of one with them."""
    routed = make_adapter(tmp_path / "routed", model, routed=True, scale=1.0)
    plain = make_adapter(tmp_path / "plain", model, scale=1.0)
    fresh, used = (load(model, cpu_backend=way, **SETTINGS) for _ in range(2))
    prompt, outputs = list(range(20, 40)), []
    for replica, adapters in ((fresh, [plain]), (used, [routed, plain])):
        for adapter in adapters:
            adapter.fill(replica.model_runner, 0)
            one = Running(0, prompt, GREEDY, 6, adapter_slot=0)
            driver = Driver.of(replica)
            driver.finish([one], budget=64)
            driver.run_well([])  # frees the slot
            outputs.append(one.output)
    assert outputs[0] == outputs[2] != outputs[1]
