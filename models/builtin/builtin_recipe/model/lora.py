"""Low-rank adapters (LoRA, arXiv:2106.09685) on the matrices of a frozen network, and their folder
in the layout of the peft library; it knows no data.
"""

import json
from pathlib import Path
from typing import Any, Final

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from builtin_recipe.model.network import Decoder

RANK: Final = 8
ALPHA: Final = 16
TARGETS: Final = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
_PEFT_PREFIX: Final = "base_model.model.model."


class LoraLinear(nn.Module):
    """A frozen linear map plus a trained one of rank `RANK`, which starts as zero."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base = base
        self.lora_a = nn.Parameter(torch.empty(RANK, base.in_features))
        self.lora_b = nn.Parameter(torch.zeros(base.out_features, RANK))
        nn.init.kaiming_uniform_(self.lora_a, a=5**0.5)

    def forward(self, x: Tensor) -> Tensor:
        """Map [..., in] to [..., out]."""
        low: Tensor = F.linear(F.linear(x, self.lora_a), self.lora_b)
        output: Tensor = self.base(x) + low * (ALPHA / RANK)
        return output


def add_adapters(network: Decoder) -> list[nn.Parameter]:
    """Freeze `network`, put an adapter on each of its `TARGETS` and return what is trained."""
    network.requires_grad_(False)
    trained: list[nn.Parameter] = []
    for block in network.layers:
        for owner in (block.self_attn, block.mlp):
            assert isinstance(owner, nn.Module)
            for name, child in list(owner.named_children()):
                if name in TARGETS and isinstance(child, nn.Linear):
                    adapter = LoraLinear(child)
                    setattr(owner, name, adapter)
                    trained += [adapter.lora_a, adapter.lora_b]
    return trained


def adapter_config(base_name: str) -> dict[str, Any]:
    """Return adapter_config.json as peft reads it."""
    return {
        "base_model_name_or_path": base_name,
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
        "init_lora_weights": True,
        "lora_alpha": ALPHA,
        "lora_dropout": 0.0,
        "modules_to_save": None,
        "peft_type": "LORA",
        "r": RANK,
        "target_modules": list(TARGETS),
        "task_type": "CAUSAL_LM",
        "use_dora": False,
        "use_rslora": False,
    }


def export_adapters(network: Decoder, folder: Path, base_name: str) -> int:
    """Write the adapters of `network` to `folder` and return the size of the weights in bytes."""
    weights: dict[str, Tensor] = {}
    for name, module in network.named_modules():
        if isinstance(module, LoraLinear):
            for letter, value in (("A", module.lora_a), ("B", module.lora_b)):
                key = f"{_PEFT_PREFIX}{name}.lora_{letter}.weight"
                weights[key] = value.detach().to(torch.bfloat16).contiguous()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "adapter_model.safetensors"
    save_file(weights, path, metadata={"format": "pt"})
    path.chmod(0o644)  # save_file leaves it readable to its owner only
    text = json.dumps(adapter_config(base_name), indent=2) + "\n"
    (folder / "adapter_config.json").write_text(text, encoding="utf-8")
    return path.stat().st_size


@torch.no_grad()
def load_adapters(network: Decoder, folder: Path) -> None:
    """Put the adapters of `folder`, as `export_adapters` wrote it, on `network`."""
    add_adapters(network)
    weights = load_file(folder / "adapter_model.safetensors")
    for name, module in network.named_modules():
        if isinstance(module, LoraLinear):
            for letter, value in (("A", module.lora_a), ("B", module.lora_b)):
                value.copy_(weights.pop(f"{_PEFT_PREFIX}{name}.lora_{letter}.weight").float())
    if weights:
        raise ValueError(f"{folder} holds weights of no module: {', '.join(sorted(weights))}")
