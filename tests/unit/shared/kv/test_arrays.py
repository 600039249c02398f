"""Arrays on the wire: byte order, torn arrays, one length."""

import pytest

from pagewire_shared.errors import WireError
from pagewire_shared.kv.arrays import (
    pack_f32,
    pack_names,
    pack_u32,
    require_one_length,
    unpack_f32,
    unpack_names,
    unpack_u32,
)


def test_u32_is_little_endian() -> None:
    assert pack_u32([1, 0x01020304]) == bytes([1, 0, 0, 0, 4, 3, 2, 1])
    assert unpack_u32(bytes([1, 0, 0, 0, 4, 3, 2, 1])) == [1, 0x01020304]


def test_u32_refuses_values_out_of_range() -> None:
    with pytest.raises(OverflowError):
        pack_u32([2**32])


def test_f32_round_trip_keeps_nan() -> None:
    values = unpack_f32(pack_f32([0.5, float("nan")]))
    assert values[0] == 0.5
    assert values[1] != values[1]


@pytest.mark.parametrize("unpack", [unpack_u32, unpack_f32])
def test_torn_array_is_refused(unpack: object) -> None:
    with pytest.raises(WireError, match="multiple of 4"):
        unpack(b"12345")  # type: ignore[operator]


def test_names_round_trip() -> None:
    names = [bytes([i]) * 16 for i in range(3)]
    assert unpack_names(pack_names(names)) == names
    with pytest.raises(WireError, match="multiple of 16"):
        unpack_names(b"short")


def test_arrays_of_different_length_are_refused() -> None:
    assert require_one_length(slots=[1, 2], counts=[3, 4]) == 2
    with pytest.raises(WireError, match="counts"):
        require_one_length(slots=[1, 2], counts=[3])
