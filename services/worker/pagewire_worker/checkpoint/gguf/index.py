"""The list of a GGUF file's tensors under the names of transformers, in a file beside it.

It is written once (convert/gguf_folder.py), so that a worker does not read the metadata again.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from pagewire_shared.errors import StartupError

FIELDS: Final = ("kind", "offset", "num_bytes", "shape", "num_heads")


@dataclass(frozen=True, slots=True)
class TensorPlace:
    """Where a tensor lies in the file, and how.

    Attributes:
        kind: Its type as llama.cpp calls it: F32, Q4_0 and so on.
        offset: Of its first byte in the file.
        shape: [outputs, inputs] of a matrix, or [size].
        num_heads: Heads whose rows llama.cpp has moved (LlamaModel.permute); 0 for none.
    """

    kind: str
    offset: int
    num_bytes: int
    shape: tuple[int, ...]
    num_heads: int = 0


def write_index(path: Path, places: Mapping[str, TensorPlace]) -> None:
    """Write the list of tensors by name."""
    path.write_text(json.dumps({name: asdict(place) for name, place in places.items()}) + "\n")


def read_index(path: Path, file_bytes: int) -> dict[str, TensorPlace]:
    """Return the tensors of a file of `file_bytes` by name. Raises StartupError."""
    try:
        data = json.loads(path.read_text())
        places = {str(name): _place(fields) for name, fields in data.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise StartupError(f"{path} is no index of a GGUF file", field="model") from error
    for name, place in places.items():
        if min(place.offset, place.num_bytes) < 0 or place.offset + place.num_bytes > file_bytes:
            raise StartupError(f"{path}: tensor {name} ends after the file", field="model")
    return places


def _place(fields: Mapping[str, Any]) -> TensorPlace:
    kind, offset, num_bytes, shape, num_heads = (fields[name] for name in FIELDS)
    return TensorPlace(
        str(kind), int(offset), int(num_bytes), tuple(map(int, shape)), int(num_heads)
    )
