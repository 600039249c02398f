"""Checkpoints whose last layer drafts, in the layouts of DeepSeek V3 and GLM-4.5."""

import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from support.checkpoints.fallback_checkpoints import make_fallback_checkpoint
from support.oracles.family_checkpoints import FAMILY_CHECKPOINTS


def make_mtp_checkpoint(
    folder: Path, name: str, *, with_tokenizer: bool = False
) -> tuple[Path, dict[str, Tensor]]:
    """Write a checkpoint of 2 layers, and of a third one that drafts.

    Args:
        name: "deepseek-v3" or "glm4-moe".

    Returns:
        The folder and all tensors.
    """
    model_type, fields = FAMILY_CHECKPOINTS[name]
    fields = {**fields, "num_hidden_layers": 3}
    make_fallback_checkpoint(folder, model_type, fields, with_tokenizer=with_tokenizer)
    path = folder / "model.safetensors"
    tensors, generator = load_file(path), torch.Generator().manual_seed(3)
    hidden = tensors["model.norm.weight"].shape[0]
    for end, shape in (
        ("eh_proj", (hidden, 2 * hidden)),
        ("enorm", (hidden,)),
        ("hnorm", (hidden,)),
    ):
        tensors[f"model.layers.2.{end}.weight"] = 0.2 * torch.randn(shape, generator=generator)
    tensors["model.layers.2.shared_head.norm.weight"] = tensors["model.norm.weight"] + 0.5
    tensors["model.layers.2.shared_head.head.weight"] = tensors["lm_head.weight"].clone()
    tensors["model.layers.2.embed_tokens.weight"] = tensors["model.embed_tokens.weight"].clone()
    save_file(tensors, path, metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    config |= {"num_hidden_layers": 2, "num_nextn_predict_layers": 1}
    for field in ("layer_types", "mlp_layer_types"):
        config.pop(field, None)
    (folder / "config.json").write_text(json.dumps(config))
    return folder, tensors


def let_the_last_token_decide(folder: Path, tensors: dict[str, Tensor]) -> None:
    """Change the model so that the last token alone decides the next, and the layer knows it."""
    for name, one in tensors.items():
        if name.endswith(("o_proj.weight", "o_proj.bias", "down_proj.weight")):
            tensors[name] = torch.zeros_like(one)
        if name.endswith(("model.norm.weight", "enorm.weight", "shared_head.norm.weight")):
            tensors[name] = torch.ones_like(one)
    hidden = len(tensors["model.norm.weight"])
    tensors["model.layers.2.eh_proj.weight"] = torch.eye(hidden, 2 * hidden)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
