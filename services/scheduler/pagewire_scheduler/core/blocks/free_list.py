"""The free list: blocks that may be given out, in the order of reuse."""

from collections.abc import Iterator


class FreeList:
    """A doubly linked list over block ids 0 to num_blocks - 1.

    Links in two arrays instead of a deque because a prefix hit takes a block out of the middle,
    which must not cost a scan. The head is reused first: blocks without content are put there,
    cached ones at the tail, so the order is least recently used. Only this class touches the links.
    """

    __slots__ = ("_end", "_is_in", "_next", "_previous", "num_blocks")

    def __init__(self, num_blocks: int) -> None:
        self._end: int = num_blocks  # sentinel: its next is the head, its previous the tail
        self._next: list[int] = [*range(1, num_blocks + 1), 0]
        self._previous: list[int] = [num_blocks, *range(num_blocks)]
        self._is_in = [True] * num_blocks
        self.num_blocks = num_blocks

    def __len__(self) -> int:
        return self.num_blocks

    def __iter__(self) -> Iterator[int]:
        block = self._next[self._end]
        while block != self._end:
            yield block
            block = self._next[block]

    def __contains__(self, block: int) -> bool:
        return self._is_in[block]

    def pop_head(self) -> int:
        """Take the block to be reused first. The list must not be empty."""
        block: int = self._next[self._end]
        assert block != self._end, "the free list is empty"
        self.remove(block)
        return block

    def remove(self, block: int) -> None:
        """Take `block` out, wherever it stands."""
        assert self._is_in[block], f"block {block} is not free"
        before, after = self._previous[block], self._next[block]
        self._next[before] = after
        self._previous[after] = before
        self._is_in[block] = False
        self.num_blocks -= 1

    def push_head(self, block: int) -> None:
        """Put `block` where it is reused first."""
        self._insert_after(self._end, block)

    def push_tail(self, block: int) -> None:
        """Put `block` where it is reused last."""
        self._insert_after(self._previous[self._end], block)

    def _insert_after(self, before: int, block: int) -> None:
        assert not self._is_in[block], f"block {block} is freed twice"
        after = self._next[before]
        self._next[before] = self._previous[after] = block
        self._previous[block], self._next[block] = before, after
        self._is_in[block] = True
        self.num_blocks += 1
