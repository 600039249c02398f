"""Remembers the cells that have seen the beginnings of prompts, so that a conversation goes to the
cell that has its KV blocks. A hint: cells drop blocks without notice."""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

MAX_PREFIXES: Final = 65_536
"""Most prefixes that are remembered; the least recently used are forgotten."""

LENGTHS: Final = tuple(32 << level for level in range(9))
"""Tokens of the prefixes that are remembered: 32 to 8,192."""


class CellAffinity:
    """Maps prefixes to cells. A cell is a number, and a set of cells is an integer of bits."""

    def __init__(self) -> None:
        self._cells: OrderedDict[int, int] = OrderedDict()

    def find(self, prefixes: Sequence[int], candidates: int) -> int:
        """Return the `candidates` that have seen the longest prefix, or 0; both as bits."""
        for prefix in reversed(prefixes):
            found = self._cells.get(prefix, 0) & candidates
            if found:
                return found
        return 0

    def note(self, prefixes: Sequence[int], cell: int) -> None:
        """Note that a cell computes these prefixes."""
        for prefix in prefixes:
            self._cells[prefix] = self._cells.get(prefix, 0) | 1 << cell
            self._cells.move_to_end(prefix)
        while len(self._cells) > MAX_PREFIXES:
            self._cells.popitem(last=False)


def prefixes_of(prompt: Sequence[int], *names: object) -> list[int]:
    """Return a hash per prefix of LENGTHS tokens, the shortest first. Prompts with different
    `names` share no prefix."""
    return [hash((*names, *prompt[:length])) for length in LENGTHS if length <= len(prompt)]
