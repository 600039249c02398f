"""Adapters of parameters that hold all experts of a layer: what does not fit is refused by name."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from pagewire_shared.adapters.adapter_error import AdapterError
from pagewire_shared.adapters.adapter_folder import check_adapter
from pagewire_shared.adapters.fit import check_fit
from pagewire_shared.adapters.tensor_header import AdapterBounds
from pagewire_worker.adapters.content import read_parts
from pagewire_worker.adapters.targets import AdapterTargets
from pagewire_worker.models.registry import read_plan
from support.adapters.model_adapters import PREFIX, MadeAdapter

FOLDER = Path(__file__).parents[3] / "support" / "adapters" / "experts" / "olmoe"
STACK = f"{PREFIX}model.layers.1.mlp.experts"
Tensors = dict[str, Tensor]


@pytest.fixture(scope="module")
def targets() -> AdapterTargets:
    return AdapterTargets(read_plan(FOLDER / "model"))


def changed(folder: Path, change: Callable[[Tensors], object] = len, **config: Any) -> MadeAdapter:
    """Return a copy of the adapter with other tensors or settings."""
    shutil.copytree(FOLDER / "adapter", folder)
    tensors = load_file(folder / "adapter_model.safetensors")
    change(tensors)
    save_file(tensors, folder / "adapter_model.safetensors")
    path = folder / "adapter_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **config}))
    return MadeAdapter(folder, {})


def read(adapter: MadeAdapter, targets: AdapterTargets) -> dict[tuple[int, int], Any]:
    modules = check_fit(adapter.summary, targets.shapes)
    return dict(read_parts(adapter.content, modules, targets, torch.float32))


def test_each_expert_has_its_rows_and_columns(targets: AdapterTargets) -> None:
    parts = read(MadeAdapter(FOLDER / "adapter", {}), targets)
    tensors = load_file(FOLDER / "adapter" / "adapter_model.safetensors")
    places = [targets.names[f"model.layers.1.mlp.experts.4.{end}_proj"] for end in ("gate", "up")]
    downs, ups = (tensors[f"{STACK}.base_layer.lora_{half}.weight"] for half in "AB")
    for number, place in enumerate(places):
        assert torch.equal(parts[place].down, downs[12:15])
        assert torch.equal(parts[place].up, ups[32 * number : 32 * (number + 1), 4::6])
        assert parts[place].scaling == pytest.approx(4 / 3)


def renamed(tensors: Tensors, old: str, new: str) -> None:
    for half in "AB":
        tensors[f"{new}.lora_{half}.weight"] = tensors.pop(f"{old}.lora_{half}.weight")


@pytest.mark.parametrize(
    ("change", "config", "text"),
    [
        pytest.param(
            len,
            {"peft_version": "0.18.1"},
            "PEFT 0.18 exchanged inputs and outputs; write the adapter with PEFT 0.19 or later",
            id="version",
        ),
        pytest.param(
            lambda one: one.update(
                {
                    f"{STACK}.lora_A.weight": torch.ones(15, 32),
                    f"{STACK}.lora_B.weight": torch.ones(64, 15),
                }
            ),
            {},
            r"experts.lora_A.weight has shape .15, 32., and 6 experts of rank 3 have 18 rows",
            id="experts",
        ),
        pytest.param(
            lambda one: one.update({f"{STACK}.lora_A.weight": torch.ones(18, 48)}),
            {},
            "48 inputs and 64 outputs are those of no parameter of target_parameters",
            id="shape",
        ),
        pytest.param(
            lambda one: one.update(
                {
                    f"{STACK}.lora_{half}.weight": one[
                        f"{STACK}.base_layer.lora_{half}.weight"
                    ].clone()
                    for half in "AB"
                }
            ),
            {},
            "module model.layers.1.mlp.experts.base_layer has two adapters",
            id="twice",
        ),
        pytest.param(
            lambda one: [one.pop(f"{STACK}.lora_{half}.weight") for half in "AB"],
            {},
            r"lacks the tensors of model.layers.1.mlp.experts.0.down_proj, which target_parameters",
            id="missing",
        ),
        pytest.param(
            lambda one: renamed(one, STACK, STACK.replace(".1.", ".7.")),
            {},
            "layers.7.mlp.experts: the layer has no experts that a router chooses",
            id="layer",
        ),
        pytest.param(
            lambda one: [one.pop(name) for name in [*one] if ".experts" in name],
            {},
            "it has no tensors of the parameters that target_parameters select",
            id="no-experts",
        ),
        pytest.param(
            len,
            {"target_parameters": ["mlp.experts.gate_up_proj"]},
            "32 inputs and 64 outputs are those of no parameter of target_parameters",
            id="unnamed",
        ),
        pytest.param(
            len,
            {"target_parameters": None},
            "lora_A.weight: (rank 18 is not that|target_modules do not select)",
            id="none",
        ),
        pytest.param(
            len,
            {"target_parameters": ["mlp.gate.weight"]},
            "target_parameters: 'mlp.gate.weight': of parameters, only experts.gate_up_proj",
            id="router",
        ),
        pytest.param(
            len,
            {"rank_pattern": {"mlp.experts.down_proj": 3}},
            "rank_pattern: 'mlp.experts.down_proj' is not supported for target_parameters",
            id="pattern",
        ),
    ],
)
def test_what_does_not_fit(
    targets: AdapterTargets,
    tmp_path: Path,
    change: Callable[[Tensors], object],
    config: dict[str, Any],
    text: str,
) -> None:
    adapter = changed(tmp_path / "adapter", change, **config)
    with pytest.raises(AdapterError, match=text):
        read(adapter, targets)


def test_one_parameter_of_one_layer(targets: AdapterTargets, tmp_path: Path) -> None:
    """PEFT gives the only parameter of a module no `base_layer`."""

    def change(tensors: Tensors) -> None:
        for name in [name for name in tensors if "experts" in name]:
            if "layers.1" not in name or "base_layer" not in name:
                del tensors[name]
        renamed(tensors, f"{STACK}.base_layer", STACK)

    parameters = ["layers.1.mlp.experts.gate_up_proj"]
    adapter = changed(tmp_path / "adapter", change, target_parameters=parameters)
    parts = read(adapter, targets)
    routed = [targets.linears[index] for index, _ in parts if targets.linears[index].is_routed]
    assert len(routed) == 12
    assert {(one.layer, one.gate_size) for one in routed} == {(1, 32)}
    assert check_adapter(adapter.folder, AdapterBounds()).rank == 3
