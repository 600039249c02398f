"""Makes messages of any type from its descriptor: random ones, with values at the bounds of each
field, and changed copies of right ones."""

import random
from collections.abc import Sequence
from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

MAX_DEPTH: Final = 4
LONG: Final = 64 * 1024
"""Bytes of a long text: longer ones are a matter of limits on whole messages."""
_WORDS: Final = (
    "",
    "a",
    "auto",
    "model",
    "unix:/x",
    "127.0.0.1:1",
    "w@h:1",
    "..",
    "/",
    "\x00",
    "ä\n",
)
_IDS: Final = (16, 0, 1, 15, 17, 32, 64)
_INTEGERS: Final = {
    FieldDescriptor.CPPTYPE_INT32: (31, True),
    FieldDescriptor.CPPTYPE_INT64: (63, True),
    FieldDescriptor.CPPTYPE_UINT32: (32, False),
    FieldDescriptor.CPPTYPE_UINT64: (64, False),
}


class HostileMessages:
    """Draws messages by a seed."""

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)

    def draw(self, kind: type[Message], seeds: Sequence[Message] = ()) -> Message:
        """Return a message of a kind; half of those with `seeds` are a changed copy of one."""
        message = kind()
        if seeds and self._dice.random() < 0.5:
            message.CopyFrom(self._dice.choice(seeds))
            for _ in range(self._dice.choice((0, 1, 1, 2, 4))):
                self._change(message)
        else:
            self._fill(message, MAX_DEPTH)
        return message

    def draw_bytes(self, kind: type[Message], seeds: Sequence[Message] = ()) -> bytes:
        """Return an encoded message; one of ten has its bytes damaged."""
        data = bytearray(self.draw(kind, seeds).SerializeToString())
        if data and self._dice.random() < 0.1:
            data[self._dice.randrange(len(data))] ^= 1 << self._dice.randrange(8)
        return bytes(data)

    def _change(self, message: Message) -> None:
        """Draw one field of a message, or of one inside it, anew."""
        inner = [
            value
            for field, value in message.ListFields()
            if field.message_type and not field.is_repeated
        ]
        if inner and self._dice.random() < 0.7:
            self._change(self._dice.choice(inner))
            return
        fields = message.DESCRIPTOR.fields
        if fields:
            field = self._dice.choice(fields)
            message.ClearField(field.name)
            if self._dice.random() < 0.85:
                self._set(message, field, 1)

    def _fill(self, message: Message, depth: int) -> None:
        share = self._dice.choice((0.2, 0.6, 1.0))
        oneofs = [list(one.fields) for one in message.DESCRIPTOR.oneofs]
        grouped = {field.name for one in oneofs for field in one}
        chosen = [self._dice.choice(one) for one in oneofs]
        chosen += [field for field in message.DESCRIPTOR.fields if field.name not in grouped]
        for field in chosen:
            if self._dice.random() < share:
                self._set(message, field, depth)

    def _set(self, message: Any, field: FieldDescriptor, depth: int) -> None:
        is_message = field.message_type is not None
        if is_message and depth == 0:
            return
        if field.is_repeated:
            number = self._dice.choice((0, 1, 1, 2, 3, 200))
            target = getattr(message, field.name)
            if is_message and field.message_type.GetOptions().map_entry:
                return
            for _ in range(min(number, 8) if is_message else number):
                if is_message:
                    self._fill(target.add(), depth - 1)
                else:
                    target.append(self._value(field))
        elif is_message:
            inner = getattr(message, field.name)
            inner.SetInParent()
            self._fill(inner, depth - 1)
        else:
            setattr(message, field.name, self._value(field))

    def _value(self, field: FieldDescriptor) -> Any:
        dice, kind = self._dice, field.cpp_type
        if kind in _INTEGERS:
            bits, is_signed = _INTEGERS[kind]
            low, high = (-(2**bits) if is_signed else 0), 2**bits - 1
            small = dice.randrange(0, 70)
            return dice.choice((low, high, high - 1, 0, 1, 2**16, small, dice.randint(low, high)))
        if kind == FieldDescriptor.CPPTYPE_BOOL:
            return dice.random() < 0.5
        if kind == FieldDescriptor.CPPTYPE_ENUM:
            numbers = [value.number for value in field.enum_type.values]
            return dice.choice([*numbers, 77, -1])
        if kind in (FieldDescriptor.CPPTYPE_FLOAT, FieldDescriptor.CPPTYPE_DOUBLE):
            return dice.choice((0.0, -0.0, 1.0, -1.0, 1e38, float("inf"), float("nan")))
        if field.type == FieldDescriptor.TYPE_STRING:
            return "x" * LONG if dice.random() < 0.02 else dice.choice(_WORDS)
        size = LONG if dice.random() < 0.02 else dice.choice(_IDS) * dice.choice((1, 1, 2, 5))
        return dice.choice((bytes(size), b"\xff" * size, dice.randbytes(size)))
