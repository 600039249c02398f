"""Which cells have seen the beginnings of prompts, so that a conversation goes where its KV blocks
are. A hint: cells forget blocks without a word. Knows no link."""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

MAX_PREFIXES: Final = 65_536
"""Remembered; the least recently used are forgotten."""

LENGTHS: Final = tuple(32 << level for level in range(9))
"""Tokens of the prefixes that are remembered: 32 to 8,192."""


class CellAffinity:
    """Cells are numbers, and sets of them are bits."""

    def __init__(self) -> None:
        self._cells: OrderedDict[int, int] = OrderedDict()

    def find(self, prefixes: Sequence[int], candidates: int) -> int:
        """Return those of `candidates` that have seen the longest prefix, or 0; both as bits."""
        for prefix in reversed(prefixes):
            found = self._cells.get(prefix, 0) & candidates
            if found:
                return found
        return 0

    def note(self, prefixes: Sequence[int], cell: int) -> None:
        """Take note that a cell computes these."""
        for prefix in prefixes:
            self._cells[prefix] = self._cells.get(prefix, 0) | 1 << cell
            self._cells.move_to_end(prefix)
        while len(self._cells) > MAX_PREFIXES:
            self._cells.popitem(last=False)


def prefixes_of(prompt: Sequence[int], *names: object) -> list[int]:
    """Return a hash per prefix of LENGTHS tokens, the shortest first; `names` tell apart prompts
    that share nothing."""
    return [hash((*names, *prompt[:length])) for length in LENGTHS if length <= len(prompt)]
