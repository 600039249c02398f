"""Splits and joins the block names of a message field, which holds many names of equal length."""

from collections.abc import Iterable

from pagewire_shared.errors import InvalidRequestError
from pagewire_shared.identity.ids import ID_BYTES, BlockName

MAX_NAMES = 4096
"""Most names in one message."""


def split_names(data: bytes) -> list[BlockName]:
    """Return the names in a field, each once, in order.

    Raises InvalidRequestError when the field is not a row of names, or has too many.
    """
    if len(data) % ID_BYTES:
        raise InvalidRequestError(
            f"names of {ID_BYTES} bytes each cannot have {len(data)} together", field="names"
        )
    num_names = len(data) // ID_BYTES
    if num_names > MAX_NAMES:
        raise InvalidRequestError(
            f"{num_names} names in one message; at most {MAX_NAMES} are allowed", field="names"
        )
    starts = range(0, len(data), ID_BYTES)
    return list(dict.fromkeys(BlockName(data[start : start + ID_BYTES]) for start in starts))


def join_names(names: Iterable[BlockName]) -> bytes:
    """Return the field that contains these names."""
    return b"".join(names)
