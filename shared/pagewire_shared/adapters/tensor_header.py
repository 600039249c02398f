"""Reads the header of a safetensors file with bounds, before anything of the data is read.

The format: 8 bytes with the length of a JSON object, little-endian, the object, then the data of
the tensors without gaps (https://github.com/huggingface/safetensors, "Format").
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, BinaryIO, Final

from pagewire_shared.adapters.adapter_error import AdapterError
from pagewire_shared.adapters.content_id import WEIGHTS_NAME
from pagewire_shared.adapters.json_object import parse_object

DTYPE_BYTES: Final[Mapping[str, int]] = {"F32": 4, "F16": 2, "BF16": 2}
"""Types of the tensors of adapters, with their bytes per value."""

MOST_PER_TENSOR: Final[Mapping[bytes, int]] = {b"{": 2, b"[": 4, b",": 16}
"""Most of these characters in a header: twice what tensors have, so that texts may have some."""

MAX_WEIGHT_BYTES: Final = 4 << 30
"""Most bytes of the tensors of an adapter."""


@dataclass(frozen=True, slots=True)
class AdapterBounds:
    """Limits of what is read of an adapter.

    Attributes:
        max_rank: Largest rank.
        max_bytes: Most bytes of the file with the tensors.
        max_tensors: Most tensors in it.
        max_header_bytes: Most bytes of its header.
    """

    max_rank: int = 256
    max_bytes: int = MAX_WEIGHT_BYTES
    max_tensors: int = 1 << 16
    max_header_bytes: int = 16 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTensor:
    """A tensor in a file.

    Attributes:
        name: As it is stored.
        dtype: A key of DTYPE_BYTES.
        shape: Its dimensions.
        begin, end: Its bytes in the file.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


def read_tensor_header(
    file: BinaryIO, num_bytes: int, bounds: AdapterBounds
) -> tuple[StoredTensor, ...]:
    """Return the tensors of a safetensors file, in the order of their data.

    Args:
        file: At its begin.
        num_bytes: Size of the file.

    Raises:
        AdapterError: The file is too large, truncated or broken; it names the tensor.
    """
    if num_bytes > bounds.max_bytes:
        raise _broken(f"{num_bytes} bytes are more than {bounds.max_bytes}")
    length = file.read(8)
    size = int.from_bytes(length, "little")
    if len(length) < 8 or size > num_bytes - 8:
        raise _broken("it is truncated, or no safetensors file")
    if size > bounds.max_header_bytes:
        raise _broken(f"a header of {size} bytes is more than {bounds.max_header_bytes}")
    content = file.read(size)
    if len(content) != size:
        raise _broken("it is truncated")
    entries = _parse(content, bounds.max_tensors)
    entries.pop("__metadata__", None)
    if len(entries) > bounds.max_tensors:
        raise _broken(f"{len(entries)} tensors are more than {bounds.max_tensors}")
    tensors = [_tensor(name, entry, 8 + size) for name, entry in entries.items()]
    tensors.sort(key=lambda tensor: (tensor.begin, tensor.end))
    _check_places(tensors, 8 + size, num_bytes)
    return tuple(tensors)


def _parse(content: bytes, max_tensors: int) -> dict[str, Any]:
    # Small values become objects of many times their bytes, so they are counted before.
    for character, most in MOST_PER_TENSOR.items():
        if content.count(character) > most * (max_tensors + 2):
            raise _broken(f"the header has too many values for {max_tensors} tensors")
    return parse_object(content, WEIGHTS_NAME, f"{WEIGHTS_NAME}: the header")


def _tensor(name: str, entry: object, start: int) -> StoredTensor:
    if not isinstance(entry, dict):
        raise _fault(name, "it is not described by an object")
    dtype: Any = entry.get("dtype")
    shape: Any = entry.get("shape")
    place: Any = entry.get("data_offsets")
    if not isinstance(dtype, str) or dtype not in DTYPE_BYTES:
        raise _fault(name, f"type {str(dtype)[:40]} is not one of {', '.join(DTYPE_BYTES)}")
    if not _are_sizes(shape) or len(shape) > 8:
        raise _fault(name, f"shape {str(shape)[:80]} is not a list of sizes")
    if not _are_sizes(place) or len(place) != 2:
        raise _fault(name, f"data_offsets {str(place)[:80]} are not two offsets")
    begin, end = place
    if end - begin != prod(shape) * DTYPE_BYTES[dtype]:
        raise _fault(name, f"{end - begin} bytes do not fit {dtype} of shape {shape}")
    return StoredTensor(
        name=name, dtype=dtype, shape=tuple(shape), begin=start + begin, end=start + end
    )


def _are_sizes(value: Any) -> bool:
    return isinstance(value, list) and all(type(one) is int and 0 <= one < 2**48 for one in value)


def _check_places(tensors: list[StoredTensor], start: int, num_bytes: int) -> None:
    at = start
    for tensor in tensors:
        if tensor.end > num_bytes:
            raise _fault(tensor.name, "the file is truncated before its end")
        if tensor.begin != at:
            what = "overlaps another one" if tensor.begin < at else "follows a gap"
            raise _fault(tensor.name, f"its data {what}")
        at = tensor.end
    if at != num_bytes:
        raise _broken(f"{num_bytes - at} bytes follow the last tensor")


def _broken(text: str) -> AdapterError:
    return AdapterError(f"{WEIGHTS_NAME}: {text}", WEIGHTS_NAME)


def _fault(name: str, text: str) -> AdapterError:
    shown = name[:200]
    return AdapterError(f"{WEIGHTS_NAME}: tensor {shown}: {text}", shown)
