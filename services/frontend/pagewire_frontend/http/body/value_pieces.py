"""Cuts a JSON value into pieces and joins them, so that no process creates all of its objects at
once.

A piece is a value without the parts that were cut out of it, and their places. Pieces come before
the piece that they belong to; the last one is the value.
"""

import marshal
from collections.abc import Callable, Iterable
from typing import Any, Final, cast

PIECE_COST: Final = 2**19
"""Approximate cost of a piece: bytes of its texts and objects. A piece is made in about a
millisecond."""
_ITEM_COST: Final = 32
_SCALARS: Final = frozenset({int, float, bool, type(None)})

Hole = tuple[tuple[str | int, ...], list[int]]
"""The path within a piece to a part that was cut out, and the numbers of its pieces."""


def cut(value: Any, send: Callable[[bytes], None]) -> bytes:
    """Send all pieces of a value but the last, and return the last."""
    scissors = _Scissors(send)
    # In a list, so that the value itself has a place.
    thin, _, holes = scissors.thin([value])
    return marshal.dumps((thin, holes))


def join(pieces: Iterable[bytes | bytearray]) -> Any:
    """Return the value of these pieces."""
    made: list[Any] = []
    for piece in pieces:
        value, holes = marshal.loads(piece)
        for path, numbers in holes:
            parts = [made[number] for number in numbers]
            for number in numbers:
                made[number] = None
            _put(value, path, _joined(parts))
        made.append(value)
    return made[-1][0]


class _Scissors:
    def __init__(self, send: Callable[[bytes], None]) -> None:
        self._send = send
        self._num_sent = 0

    def thin(self, value: Any) -> tuple[Any, int, list[Hole]]:
        """Return a value without the parts that are cut out, its cost, and its holes."""
        if isinstance(value, str):
            if len(value) <= PIECE_COST:
                return value, _ITEM_COST + len(value), []
            return self._sliced(value, PIECE_COST)
        if isinstance(value, list) and _SCALARS.issuperset(map(type, value)):
            if len(value) * _ITEM_COST <= PIECE_COST:
                return value, _ITEM_COST * (1 + len(value)), []
            return self._sliced(value, PIECE_COST // _ITEM_COST)
        if isinstance(value, (list, dict)):
            return self._thin_items(value)
        return value, _ITEM_COST, []

    def _sliced(self, value: Any, size: int) -> tuple[Any, int, list[Hole]]:
        starts = range(0, len(value), size)
        numbers = [self._cut_out(value[start : start + size], []) for start in starts]
        return None, _ITEM_COST, [((), numbers)]

    def _thin_items(self, value: Any) -> tuple[Any, int, list[Hole]]:
        is_list = isinstance(value, list)
        kept: Any = type(value)()
        cost, holes, numbers = 2 * _ITEM_COST, list[Hole](), list[int]()
        items: Iterable[tuple[Any, Any]] = enumerate(value) if is_list else value.items()
        for key, item in items:
            thin, item_cost, inner = self.thin(item)
            place = len(kept) if is_list else key
            if is_list:
                kept.append(thin)
            else:
                kept[key] = thin
                item_cost += _ITEM_COST + len(cast(str, key))
            cost += item_cost
            holes += [((place, *path), found) for path, found in inner]
            if cost > PIECE_COST:
                numbers.append(self._cut_out(kept, holes))
                kept, cost, holes = type(value)(), 2 * _ITEM_COST, []
        if not numbers:
            return kept, cost, holes
        numbers.append(self._cut_out(kept, holes))
        return None, _ITEM_COST, [((), numbers)]

    def _cut_out(self, value: Any, holes: list[Hole]) -> int:
        self._send(marshal.dumps((value, holes)))
        self._num_sent += 1
        return self._num_sent - 1


def _put(value: Any, path: tuple[str | int, ...], item: Any) -> None:
    for key in path[:-1]:
        value = value[key]
    value[path[-1]] = item


def _joined(parts: list[Any]) -> Any:
    first = parts[0]
    if isinstance(first, str):
        return "".join(parts)
    for part in parts[1:]:
        if isinstance(first, dict):
            first.update(part)
        else:
            first += part
    return first
