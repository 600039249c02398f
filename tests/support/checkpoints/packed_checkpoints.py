"""Checkpoints whose matrices are packed integers of 4 bits (W4A16), rounded from another one."""

import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

GROUP = 32
_WEIGHTS = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": GROUP}


def write_w4a16(folder: Path, checkpoint: Path) -> Path:
    """Write `checkpoint` in the layout pack-quantized of compressed-tensors; return `folder`.

    Layout: compressed_tensors/compressors/pack_quantized.py. The output layer stays as it is.
    """
    shutil.copytree(checkpoint, folder)
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": _WEIGHTS}},
    }
    (folder / "config.json").write_text(json.dumps(config))
    stored: dict[str, Tensor] = {}
    for name, tensor in load_file(folder / "model.safetensors").items():
        is_packed = name.endswith("proj.weight")
        stored |= _packed(name, tensor.float()) if is_packed else {name: tensor}
    save_file(stored, folder / "model.safetensors")
    return folder


def _packed(name: str, weight: Tensor) -> dict[str, Tensor]:
    groups = weight.unflatten(1, (-1, GROUP))
    scales = groups.abs().amax(dim=2, keepdim=True) / 7
    codes = ((groups / scales).round() + 8).to(torch.int64).flatten(1).unflatten(1, (-1, 8))
    words = (codes << torch.arange(0, 32, 4)).sum(dim=2)
    return {
        # The highest bit of a word is the sign of an int32.
        f"{name}_packed": ((words + 2**31) % 2**32 - 2**31).to(torch.int32),
        f"{name}_scale": scales.squeeze(2),
        f"{name}_shape": torch.tensor(weight.shape),
    }
