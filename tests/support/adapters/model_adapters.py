"""Random adapters for the matrices of a small checkpoint, and the checkpoint with one merged in."""

import json
import shutil
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from pagewire_shared.adapters.adapter_folder import (
    AdapterContent,
    AdapterSummary,
    check_content,
    read_adapter_files,
)
from pagewire_shared.adapters.tensor_header import AdapterBounds
from pagewire_worker.adapters.targets import AdapterTargets
from pagewire_worker.models.registry import read_plan
from pagewire_worker.runner.model_runner import ModelRunner

PREFIX = "base_model.model."


@dataclass(frozen=True)
class MadeAdapter:
    """An adapter that was written to a folder.

    Attributes:
        changes: What it adds to each matrix, by the name of its tensor, float32.
    """

    folder: Path
    changes: dict[str, Tensor]

    @property
    def content(self) -> AdapterContent:
        return read_adapter_files(self.folder, AdapterBounds())

    @property
    def summary(self) -> AdapterSummary:
        return check_content(self.content, AdapterBounds())

    def fill(self, model_runner: ModelRunner, slot: int) -> None:
        """Load it into a slot, as a worker does beside its steps."""
        slots = model_runner._adapters
        assert slots is not None
        slots.fill(slot, self.content, self.summary)


def make_adapter(
    folder: Path,
    model: Path,
    *,
    rank: int = 4,
    seed: int = 0,
    scale: float = 0.3,
    only: Collection[str] | None = None,
    routed: bool = False,
    outer: bool = False,
    dtype: torch.dtype = torch.float32,
    **config: Any,
) -> MadeAdapter:
    """Write a random adapter for the model in `model`.

    Args:
        scale: Size of its values.
        only: Last names of the modules that it adapts; None for all that can be.
        routed: Whether it adapts experts that a router chooses, too.
        outer: Whether it adapts the embedding and the matrix for logits, too.
    """
    generator = torch.Generator().manual_seed(seed)
    settings = {"peft_type": "LORA", "r": rank, "lora_alpha": 2 * rank, **config}
    factor = settings["lora_alpha"] / (rank**0.5 if settings.get("use_rslora") else rank)
    tensors: dict[str, Tensor] = {}
    changes: dict[str, Tensor] = {}
    linears = AdapterTargets(read_plan(model)).linears
    kinds = {"layer", *(("expert",) if routed else ()), *(("embedding", "output") * outer)}
    for linear in (one for one in linears if one.place in kinds):
        for name, size in linear.spec.parts:
            if only is not None and name.rpartition(".")[2] not in only:
                continue
            inputs = linear.spec.num_inputs
            down = torch.randn(rank, inputs, generator=generator) * scale / inputs**0.5
            up = torch.randn(size, rank, generator=generator) * scale
            down, up = down.to(dtype), up.to(dtype)
            is_embedding = linear.place == "embedding"
            ends = ("embedding_A", "embedding_B") if is_embedding else ("A.weight", "B.weight")
            for end, tensor in zip(ends, (down, up), strict=True):
                tensors[f"{PREFIX}{name}.lora_{end}"] = tensor
            change = factor * up.float() @ down.float()
            changes[f"{name}.weight"] = change.T if is_embedding else change
    names = sorted({name.split(".")[-2] for name in changes})
    folder.mkdir(parents=True, exist_ok=True)
    settings.setdefault("target_modules", names)
    (folder / "adapter_config.json").write_text(json.dumps(settings))
    save_file(tensors, folder / "adapter_model.safetensors")
    return MadeAdapter(folder, changes)


def merge(adapter: MadeAdapter, model: Path, folder: Path) -> Path:
    """Write the checkpoint `model` with the adapter in its matrices; return its folder.

    One matrix for the embedding and for logits becomes two.
    """
    shutil.copytree(model, folder)
    stored = load_file(model / "model.safetensors")
    if "lm_head.weight" in adapter.changes and "lm_head.weight" not in stored:
        stored["lm_head.weight"] = stored["model.embed_tokens.weight"].clone()
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": False}))
    for name, change in adapter.changes.items():
        stored[name] = (stored[name].float() + change).to(stored[name].dtype)
    save_file(stored, folder / "model.safetensors", {"format": "pt"})
    return folder
