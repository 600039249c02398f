"""Which addresses belong to a tensor. Pure arithmetic."""

from dataclasses import dataclass

import numpy as np
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Extent:
    """The memory of one tensor, which may be a view with gaps.

    Attributes:
        begin, end: Addresses in bytes; `end` is behind the last element.
        itemsize: Bytes of an element.
        steps: (elements from one to the next, how many) of each dimension, the widest first; empty
            where the elements have no gaps between them.
        tensor: Its type, shape and strides, in words.
    """

    begin: int
    end: int
    itemsize: int
    steps: tuple[tuple[int, int], ...]
    tensor: str

    @classmethod
    def of(cls, tensor: Tensor) -> "Extent":
        """Return that of `tensor`."""
        begin, itemsize = tensor.data_ptr(), tensor.element_size()
        words = f"{tensor.dtype} {tuple(tensor.shape)} with strides {tensor.stride()}"
        if tensor.numel() == 0:
            return cls(begin, begin, itemsize, (), words)
        dims = zip(tensor.stride(), tensor.shape, strict=True)
        steps = tuple(sorted(((stride, size) for stride, size in dims if size > 1), reverse=True))
        length = 1 + sum(stride * (size - 1) for stride, size in steps)
        is_dense = length == tensor.numel()
        return cls(
            begin,
            begin + length * itemsize,
            itemsize,
            () if is_dense or not _is_nested(steps) else steps,
            words,
        )

    def outside(self, addresses: np.ndarray) -> int | None:
        """Return one of `addresses` [n] uint64 that is not an element's; None where all are."""
        low, high = int(addresses.min()), int(addresses.max())
        if low < self.begin:
            return low
        if high + self.itemsize > self.end:
            return high
        if not self.steps:
            return None
        rest = addresses - np.uint64(self.begin)
        is_bad = rest % self.itemsize != 0
        rest //= np.uint64(self.itemsize)
        for stride, size in self.steps:
            index = rest // np.uint64(stride)
            is_bad |= index >= size
            rest -= index * np.uint64(stride)
        is_bad |= rest != 0
        return int(addresses[is_bad][0]) if is_bad.any() else None

    def place_of(self, address: int) -> str:
        """Say where an address lies."""
        offset = (address - self.begin + 2**63) % 2**64 - 2**63
        count = (self.end - self.begin) // self.itemsize
        return f"element {offset // self.itemsize} of {count} ({self.tensor})"


def _is_nested(steps: tuple[tuple[int, int], ...]) -> bool:
    """Return whether each dimension steps over all of the next ones."""
    reach = 1
    for stride, size in reversed(steps):
        if stride < reach:
            return False
        reach = stride * (size - 1) + reach
    return True
