"""Copies small arrays of the host to the device."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

ALIGNMENT = 16


def to_device(array: npt.NDArray[Any], device: torch.device) -> Tensor:
    """Return `array` on `device`, without waiting for work that runs there.

    On a CPU the tensor shares the array's memory. For a GPU the array passes through pinned memory,
    which torch keeps until the copy is done. A copy from other memory would wait for all earlier
    work.
    """
    tensor = torch.from_numpy(np.ascontiguousarray(array))
    if device.type == "cpu":
        return tensor
    return tensor.pin_memory().to(device, non_blocking=True)


def rows_to_device(rows: Sequence[npt.NDArray[Any]], device: torch.device) -> tuple[Tensor, ...]:
    """Return `rows`, [n] each of its own length and all of one type, on `device`, by one copy.

    A copy takes the host some 35 us, whatever its size. Each row begins at a multiple of 16 bytes,
    like a separate allocation: Triton would compile a kernel again for tensors that do not.
    """
    packed, begins = packed_rows(rows)
    there = to_device(packed, device)
    return tuple(there[begin : begin + len(row)] for begin, row in zip(begins, rows, strict=True))


def packed_rows(rows: Sequence[npt.NDArray[Any]]) -> tuple[npt.NDArray[Any], list[int]]:
    """Return `rows` in one array, and where each begins: at multiples of 16 bytes."""
    begins, end = [], 0
    for row in rows:
        begins.append(end)
        end += aligned(len(row), row.itemsize)
    packed = np.zeros(end, dtype=rows[0].dtype)
    for begin, row in zip(begins, rows, strict=True):
        packed[begin : begin + len(row)] = row
    return packed, begins


def aligned(length: int, itemsize: int) -> int:
    """Return the least number of elements, at least `length`, that end at 16 bytes."""
    per_line = ALIGNMENT // itemsize
    return -(-length // per_line) * per_line


def into(array: npt.NDArray[Any], target: Tensor) -> None:
    """Copy `array` to `target`, of its type and size, without waiting for the device."""
    tensor = torch.from_numpy(array)
    target.copy_(tensor if target.is_cpu else tensor.pin_memory(), non_blocking=True)
