"""Writes folders with small adapters, whole and broken ones."""

import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Q = "base_model.model.model.layers.0.self_attn.q_proj"
CONFIG: dict[str, Any] = {
    "peft_type": "LORA",
    "r": 4,
    "lora_alpha": 8,
    "bias": "none",
    "target_modules": ["q_proj"],
}
Entry = tuple[str, str, Sequence[int]]
ENTRIES: tuple[Entry, ...] = (
    (f"{Q}.lora_A.weight", "F32", (4, 6)),
    (f"{Q}.lora_B.weight", "F32", (10, 4)),
)
_SIZES = {"F32": 4, "F16": 2, "BF16": 2}


def weights_of(entries: Sequence[Entry], changes: Mapping[str, Any] | None = None) -> bytes:
    """Return a safetensors file of zeros; `changes` replace whole descriptions by name."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, dtype, shape in entries:
        size = _SIZES.get(dtype, 4)
        for one in shape:
            size *= one
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    header.update(changes or {})
    return framed(json.dumps(header).encode(), at)


def framed(header: bytes, num_data_bytes: int) -> bytes:
    """Return a file with this header and so many bytes of data."""
    return struct.pack("<Q", len(header)) + header + bytes(num_data_bytes)


def write_adapter(
    folder: Path,
    config: Mapping[str, Any] | bytes = CONFIG,
    weights: bytes | None = None,
) -> Path:
    """Write both files of an adapter."""
    folder.mkdir(exist_ok=True)
    data = config if isinstance(config, bytes) else json.dumps(config).encode()
    (folder / "adapter_config.json").write_bytes(data)
    content = weights_of(ENTRIES) if weights is None else weights
    (folder / "adapter_model.safetensors").write_bytes(content)
    return folder
