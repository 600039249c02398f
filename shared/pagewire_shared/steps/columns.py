"""Columns of step plans and results: their types, their forms on the wire, and their conversion.

A struct is a dataclass. A field made by `column` is packed into bytes; int, str and bytes stay as
they are. `convert.py` has the code for all other fields.
"""

from collections.abc import Callable, Sequence
from dataclasses import field, fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from pagewire_shared.kv.arrays import (
    F32Array,
    array_f32,
    array_u32,
    pack_f32,
    pack_names,
    pack_u32,
    require_one_length,
    unpack_f32,
    unpack_names,
    unpack_u32,
    view_u8,
    view_u32,
)

Ints = Sequence[int] | npt.NDArray[np.unsignedinteger[Any]]
"""Integers per slot, token or block, as any reader takes them."""
Floats = Sequence[float] | F32Array

if TYPE_CHECKING:
    # With a default, the name of a struct alone means any columns; Python has it from 3.13 on.
    from typing_extensions import TypeVar

    IntsT = TypeVar("IntsT", bound=Ints, covariant=True, default=Ints)
    FloatsT = TypeVar("FloatsT", bound=Floats, covariant=True, default=Floats)
else:
    from typing import TypeVar

    IntsT, FloatsT = TypeVar("IntsT"), TypeVar("FloatsT")


class Form(NamedTuple):
    """How a column is packed into bytes, and how its reader unpacks them."""

    pack: Callable[[Any], bytes]
    unpack: Callable[[bytes], Any]


# What the worker reads.
U32: Final = Form(pack_u32, view_u32)
U8: Final = Form(bytes, view_u8)
NAMES: Final = Form(pack_names, unpack_names)
# What the scheduler reads.
U32_LIST: Final = Form(pack_u32, unpack_u32)
F32_LIST: Final = Form(pack_f32, unpack_f32)
U32_COMPACT: Final = Form(pack_u32, array_u32)
F32_COMPACT: Final = Form(pack_f32, array_f32)


def column(form: Form, *, group: str = "") -> Any:
    """Return a field for a column, an empty list by default; those of a `group` have one length."""
    return field(default_factory=list, metadata={"form": form, "group": group})


class Columns:
    """The fields of a struct that its message has under the same names."""

    def __init__(self, struct: type[Any]) -> None:
        found = [one for one in fields(struct) if "form" in one.metadata]
        self._plain = [one.name for one in fields(struct) if one.type in (int, str, bytes)]
        self._forms: list[tuple[str, Form]] = [(one.name, one.metadata["form"]) for one in found]
        self._values = attrgetter(*(one.name for one in found))
        self._groups: dict[str, list[str]] = {}
        for one in found:
            if one.metadata["group"]:
                self._groups.setdefault(one.metadata["group"], []).append(one.name)

    def pack(self, struct: object) -> dict[str, Any]:
        """Return the fields of the message; empty ones are left out."""
        packed = {name: value for name in self._plain if (value := getattr(struct, name))}
        for (name, form), values in zip(self._forms, self._values(struct), strict=True):
            if len(values):
                packed[name] = form.pack(values)
        return packed

    def unpack(self, message: object) -> dict[str, Any]:
        """Return the fields of the struct. Raises WireError on a torn array."""
        unpacked = {name: getattr(message, name) for name in self._plain}
        for (name, form), data in zip(self._forms, self._values(message), strict=True):
            if data:
                unpacked[name] = form.unpack(data)
        return unpacked

    def check_lengths(self, struct: object) -> None:
        """Raise WireError unless the columns of each group have one length."""
        for names in self._groups.values():
            require_one_length(**{name: getattr(struct, name) for name in names})
