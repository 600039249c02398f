"""Workers with random weights: settings of measurements, as far as this version has them."""

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import command
from shapes import Shape, write_checkpoint

from pagewire_worker.config import WorkerConfig
from pagewire_worker.loading.loader import Replica, load_replica


def base_settings(**more: Any) -> dict[str, Any]:
    """Return settings that `serve` and workers share, with `more` on top."""
    return {
        "device": "cpu" if command.IS_TOY else "cuda",
        "dtype": "float32" if command.IS_TOY else "bfloat16",
        "load_format": "dummy",
        "attention_backend": "triton",
        "seed": 0,
        "kv_offload": "off",
        **more,
    }


def unknown_settings(config: type, settings: Mapping[str, Any]) -> list[str]:
    """Return those of `settings` that this version does not have."""
    known = {item.name for item in fields(config)}
    return [name for name in settings if name not in known]


def load(shape: Shape, parent: Path, settings: Mapping[str, Any]) -> Replica:
    """Return a worker's model; a checkpoint for it is written to `parent`."""
    folder = write_checkpoint(shape, parent)
    return load_replica(WorkerConfig(model=str(folder), **settings))


def kv_bytes(shape: Shape, num_tokens: int, size: int) -> int:
    """Return the memory of a KV cache of so many tokens with elements of `size` bytes."""
    return num_tokens * shape.kv_elements_per_token * size
