"""Variable-length integers as protobuf encodes them.

(Encoding: https://protobuf.dev/programming-guides/encoding/)
"""

from pagewire_shared.errors import WireError

_MAX_BYTES = 10


def encode_varint(value: int) -> bytes:
    """Return the encoding of a non-negative number."""
    groups = bytearray()
    while value > 0x7F:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    groups.append(value)
    return bytes(groups)


def read_varint(view: memoryview, position: int) -> tuple[int, int]:
    """Return a number and the position behind it. Raises WireError."""
    value = 0
    for index in range(_MAX_BYTES):
        if position + index >= len(view):
            raise WireError("a message of KV is cut off")
        byte = view[position + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value, position + index + 1
    raise WireError("a number in a message of KV is too long")
