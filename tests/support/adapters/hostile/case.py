"""One hostile adapter, and the good one that it is made from."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pagewire_shared.adapters.content_id import CONFIG_NAME, WEIGHTS_NAME

Entries = dict[str, tuple[str, list[int], bytes]]
"""Name of a tensor -> its type, shape and data."""


@dataclass(frozen=True, slots=True)
class HostileCase:
    """A call that must be refused.

    Attributes:
        title: What is wrong.
        write: Fills the folder, which is there and empty.
        path: What the call names in the place of the folder; None for the folder.
        name: What the call names the adapter; None for the title.
    """

    title: str
    write: Callable[[Path], None]
    path: str | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True)
class GoodAdapter:
    """The adapter that the hostile ones are made from.

    Attributes:
        config: Its settings.
        entries: Its tensors, of float32.
    """

    config: Mapping[str, Any]
    entries: Entries = field(repr=False)

    @classmethod
    def read(cls, folder: Path) -> "GoodAdapter":
        """Read the adapter in a folder, of float32."""
        data = (folder / WEIGHTS_NAME).read_bytes()
        start = 8 + int.from_bytes(data[:8], "little")
        header = json.loads(data[8:start])
        header.pop("__metadata__", None)
        entries = {}
        for name, one in sorted(header.items()):
            begin, end = one["data_offsets"]
            entries[name] = (one["dtype"], one["shape"], data[start + begin : start + end])
        return cls(json.loads((folder / CONFIG_NAME).read_text()), entries)

    @property
    def names(self) -> list[str]:
        """Names of its tensors: lora_A and lora_B of each module in turn."""
        return list(self.entries)

    def config_bytes(self, **changes: Any) -> bytes:
        """Return adapter_config.json with other settings."""
        return json.dumps({**self.config, **changes}).encode()

    def case(
        self,
        title: str,
        config: bytes | None = None,
        weights: bytes | None = None,
        **fields: Any,
    ) -> HostileCase:
        """Return a case whose files are these, or the good ones."""
        files = {
            CONFIG_NAME: self.config_bytes() if config is None else config,
            WEIGHTS_NAME: pack(self.entries) if weights is None else weights,
        }

        def write(folder: Path) -> None:
            for name, data in files.items():
                (folder / name).write_bytes(data)

        return HostileCase(title, write, **fields)


def header_of(entries: Entries) -> dict[str, dict[str, Any]]:
    """Return the header of a safetensors file."""
    header, at = {}, 0
    for name, (dtype, shape, data) in entries.items():
        header[name] = {
            "dtype": dtype,
            "shape": shape,
            "data_offsets": [at, at + len(data)],
        }
        at += len(data)
    return header


def pack(
    entries: Entries, header: Mapping[str, Any] | bytes | None = None, length: int | None = None
) -> bytes:
    """Return a safetensors file; a header, and the length that is told of it, may be others."""
    found = header_of(entries) if header is None else header
    text = found if isinstance(found, bytes) else json.dumps(found).encode()
    told = len(text) if length is None else length
    data = b"".join(data for _, _, data in entries.values())
    return told.to_bytes(8, "little") + text + data


def converted(entries: Entries, dtype: str) -> Entries:
    """Return tensors of float32 as F16 or BF16, cut off."""
    result = {}
    for name, (_, shape, data) in entries.items():
        values = np.frombuffer(data, "<f4")
        if dtype == "F16":
            result[name] = (dtype, shape, values.astype("<f2").tobytes())
        else:
            result[name] = (dtype, shape, (values.view("<u4") >> 16).astype("<u2").tobytes())
    return result
