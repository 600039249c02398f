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


def write_index(path: Path, file: Path, places: Mapping[str, TensorPlace]) -> None:
    """Write the list of tensors by name, and which `file` it is of."""
    found = file.stat()
    data = {
        "file_bytes": found.st_size,
        "mtime_ns": found.st_mtime_ns if file.is_symlink() else None,
        "tensors": {name: asdict(place) for name, place in places.items()},
    }
    path.write_text(json.dumps(data) + "\n")


def read_index(path: Path, file: Path) -> dict[str, TensorPlace]:
    """Return the tensors of `file` by name.

    Raises:
        StartupError: The index is broken, or the file is not the one that it was made of. A file
            behind a link may be replaced at any time.
    """
    try:
        data, found = json.loads(path.read_text()), file.stat()
        size, mtime = data["file_bytes"], data["mtime_ns"]
        places = {str(name): _place(fields) for name, fields in data["tensors"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise StartupError(f"{path} is no index of a GGUF file", field="model") from error
    if size != found.st_size or mtime not in (None, found.st_mtime_ns):
        raise StartupError(
            f"{file} has changed since {path.name} was made of it; start with the GGUF file itself",
            field="model",
        )
    for name, place in places.items():
        if min(place.offset, place.num_bytes) < 0 or place.offset + place.num_bytes > size:
            raise StartupError(f"{path}: tensor {name} ends after the file", field="model")
        if not place.shape or min(place.shape) < 1 or place.num_bytes % place.shape[0]:
            raise StartupError(
                f"{path}: tensor {name} of shape {list(place.shape)} cannot have"
                f" {place.num_bytes} bytes",
                field="model",
            )
    return places


def _place(fields: Mapping[str, Any]) -> TensorPlace:
    kind, offset, num_bytes, shape, num_heads = (fields[name] for name in FIELDS)
    return TensorPlace(
        str(kind), int(offset), int(num_bytes), tuple(map(int, shape)), int(num_heads)
    )
