"""Allocates extents of an arena by offset and size, without touching its memory."""

from bisect import bisect_left, insort
from collections.abc import Iterable

GRANULE_BYTES = 4 * 1024
"""A page, so that no two blocks share one."""


class Extents:
    """Contiguous extents inside [0, capacity): best fit, neighbours joined when freed.

    Best fit with coalescing, Knuth, The Art of Computer Programming, vol. 1, 2.5.

    Args:
        capacity_bytes: Bytes in all; a multiple of the granule.
        granule: Offsets and sizes in bytes are multiples of it.
    """

    def __init__(self, capacity_bytes: int, granule: int = GRANULE_BYTES) -> None:
        assert granule > 0, granule
        assert capacity_bytes > 0, capacity_bytes
        assert capacity_bytes % granule == 0, (capacity_bytes, granule)
        self.capacity_bytes = capacity_bytes
        self.free_bytes = 0
        self._granule = granule
        self._used: dict[int, int] = {}
        # Free extents: end by start, start by end, and (size, start) in order.
        self._ends: dict[int, int] = {}
        self._starts: dict[int, int] = {}
        self._sizes: list[tuple[int, int]] = []
        self._insert(0, capacity_bytes)

    @property
    def largest_free(self) -> int:
        """Size of the largest free extent in bytes, 0 when the arena is full."""
        return self._sizes[-1][0] if self._sizes else 0

    def rounded(self, num_bytes: int) -> int:
        """Return the bytes that an allocation of `num_bytes` takes."""
        return -(-num_bytes // self._granule) * self._granule

    def allocate(self, num_bytes: int) -> int | None:
        """Allocate the smallest free extent that is large enough, the lowest among equals.

        Returns:
            Offset in bytes; None when no free extent is large enough.
        """
        assert num_bytes > 0, num_bytes
        size = self.rounded(num_bytes)
        index = bisect_left(self._sizes, (size, 0))
        if index == len(self._sizes):
            return None
        start = self._sizes[index][1]
        end = self._ends[start]
        self._take(start, end)
        if start + size < end:
            self._insert(start + size, end)
        self._used[start] = size
        return start

    def free(self, offset: int) -> None:
        """Free the extent at `offset`. Raises AssertionError when none is allocated there."""
        assert offset in self._used, f"no extent is allocated at {offset}"
        start, end = offset, offset + self._used.pop(offset)
        if end in self._ends:
            after_end = self._ends[end]
            self._take(end, after_end)
            end = after_end
        if start in self._starts:
            before_start = self._starts[start]
            self._take(before_start, start)
            start = before_start
        self._insert(start, end)

    def choose_to_free(
        self, num_bytes: int, freed: Iterable[int], candidates: Iterable[int]
    ) -> list[int] | None:
        """Choose extents to free besides `freed` so that `num_bytes` fit, without freeing them.

        Candidates are tried in turn until they, `freed` and free extents make one run that is large
        enough. Candidates outside that run are not chosen.

        Args:
            freed: Offsets of allocated extents that will be freed in any case.
            candidates: Offsets of other allocated extents, in order of preference.

        Returns:
            Offsets of chosen candidates; None when even all of them are too little.
        """
        size = self.rounded(num_bytes)
        if self.largest_free >= size:
            return []
        ends, starts = dict(self._ends), dict(self._starts)

        def join(offset: int) -> tuple[int, int]:
            end = offset + self._used[offset]
            start = starts.pop(offset, offset)
            end = ends.pop(end, end)
            ends[start], starts[end] = end, start
            return start, end

        for offset in freed:
            start, end = join(offset)
            if end - start >= size:
                return []
        tried: list[int] = []
        for offset in candidates:
            tried.append(offset)
            start, end = join(offset)
            if end - start >= size:
                return self._needed(tried, start, end, size)
        return None

    def _needed(self, tried: list[int], start: int, end: int, size: int) -> list[int]:
        """Shrink a run to `size`, and spare the candidates tried last first."""
        for offset in reversed(tried):
            if not start <= offset < end:
                continue
            offset_end = offset + self._used[offset]
            if offset - start >= size:
                end = offset
            elif end - offset_end >= size:
                start = offset_end
        return [offset for offset in tried if start <= offset < end]

    def _insert(self, start: int, end: int) -> None:
        self._ends[start] = end
        self._starts[end] = start
        insort(self._sizes, (end - start, start))
        self.free_bytes += end - start

    def _take(self, start: int, end: int) -> None:
        del self._ends[start], self._starts[end]
        del self._sizes[bisect_left(self._sizes, (end - start, start))]
        self.free_bytes -= end - start
