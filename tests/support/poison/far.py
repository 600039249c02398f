"""Tensors with elements beyond 2**31, in a file with holes: it takes what is written."""

import mmap
import tempfile

import torch
from torch import Tensor

BEYOND = 2**31
"""Elements that an offset of 32 bits does not reach."""


def far_tensor(shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Return zeros of `shape`, `strides` elements apart. Whoever copies it as a whole, gaps and
    all, takes gigabytes."""
    length = 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    with tempfile.TemporaryFile() as file:
        file.truncate(length * dtype.itemsize)
        memory = mmap.mmap(file.fileno(), length * dtype.itemsize)
    flat = torch.frombuffer(memory, dtype=torch.uint8).view(dtype)
    return flat.as_strided(shape, strides)


def far_rows(rows: Tensor) -> Tensor:
    """Return a copy of `rows` [n, size], the last of which begins at element 2**31 or behind."""
    apart = -(-BEYOND // (len(rows) - 1))
    far = far_tensor(tuple(rows.shape), (apart, 1), rows.dtype)
    far.copy_(rows)
    return far
