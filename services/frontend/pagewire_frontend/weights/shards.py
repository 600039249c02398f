"""The form of a safetensors file: sizes of types, and the header before the data."""

import json
import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pagewire_shared.errors import InvalidRequestError

DTYPE_BYTES: Final = {
    **dict.fromkeys(("F64", "I64", "U64"), 8),
    **dict.fromkeys(("F32", "I32", "U32"), 4),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 2),
    **dict.fromkeys(("F8_E4M3", "F8_E5M2", "F8_E8M0", "I8", "U8", "BOOL"), 1),
}
"""Types by their names in safetensors."""

MAX_NAME: Final = 512
MAX_DIMENSIONS: Final = 8
MAX_SIZE: Final = 2**48
"""Most bytes of one tensor."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor of a checkpoint, without its data."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def num_bytes(self) -> int:
        """Bytes of its data."""
        return DTYPE_BYTES[self.dtype] * math.prod(self.shape)


def check_tensor(tensor: Tensor) -> Tensor:
    """Return a tensor. Raises InvalidRequestError naming the field."""
    name = tensor.name
    if not 0 < len(name) <= MAX_NAME or not name.isprintable() or name == "__metadata__":
        raise InvalidRequestError(
            f"tensors.name is 1 to {MAX_NAME} printable characters", field="tensors.name"
        )
    if tensor.dtype not in DTYPE_BYTES:
        raise InvalidRequestError(
            f"tensors.dtype of {name} is {tensor.dtype[:32]!r}, none of {', '.join(DTYPE_BYTES)}",
            field="tensors.dtype",
        )
    if len(tensor.shape) > MAX_DIMENSIONS or tensor.num_bytes > MAX_SIZE:
        raise InvalidRequestError(f"tensors.shape of {name} is too large", field="tensors.shape")
    return tensor


def header_of(tensors: Sequence[Tensor]) -> bytes:
    """Return what stands before the data of `tensors`, which follow each other."""
    entries, end = {}, 0
    for tensor in tensors:
        begin, end = end, end + tensor.num_bytes
        entries[tensor.name] = {
            "dtype": tensor.dtype,
            "shape": tensor.shape,
            "data_offsets": [begin, end],
        }
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text
