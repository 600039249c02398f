"""gpt-oss with experts in MXFP4, as it is published, and in the values that transformers makes."""

import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

from support.oracles.family_checkpoints import make_family_checkpoint

SETTINGS = {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}
GROUP = 32


def make_mxfp4_checkpoints(folder: Path) -> tuple[Path, Path]:
    """Write a model below `folder` with blocks and scales, and with values; return both folders."""
    plain = make_family_checkpoint(folder / "plain", "gpt-oss")
    packed = folder / "packed"
    shutil.copytree(plain, packed)
    values, stored = ({}, {})
    generator = torch.Generator().manual_seed(5)
    for name, tensor in load_file(plain / "model.safetensors").items():
        values[name] = stored[name] = tensor
        if name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            del stored[name]
            blocks, scales = drawn(tensor.transpose(1, 2).shape, generator)
            stored |= {f"{name}_blocks": blocks, f"{name}_scales": scales}
            values[name] = convert_moe_packed_tensors(blocks, scales, dtype=torch.float32)
    save_file(values, plain / "model.safetensors", metadata={"format": "pt"})
    save_file(stored, packed / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((packed / "config.json").read_text())
    (packed / "config.json").write_text(json.dumps({**config, "quantization_config": SETTINGS}))
    return packed, plain


def drawn(shape: torch.Size, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return blocks and scales of matrices [experts, outputs, inputs]; weights are about 0.1."""
    experts, outputs, inputs = shape
    groups = (experts, outputs, inputs // GROUP)
    options = {"dtype": torch.uint8, "generator": generator}
    return (
        torch.randint(0, 256, (*groups, GROUP // 2), **options),
        torch.randint(119, 124, groups, **options),
    )
