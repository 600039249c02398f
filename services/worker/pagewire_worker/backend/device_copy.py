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
    """Return `rows`, [n] each and of one type, on `device`, by one copy.

    Each row begins at a multiple of 16 bytes, like a separate allocation: Triton would compile a
    kernel again for tensors that do not.
    """
    length = len(rows[0])
    per_line = ALIGNMENT // rows[0].itemsize
    packed = np.zeros((len(rows), -(-length // per_line) * per_line), dtype=rows[0].dtype)
    for place, row in zip(packed, rows, strict=True):
        place[:length] = row
    return tuple(row[:length] for row in to_device(packed, device).unbind())
