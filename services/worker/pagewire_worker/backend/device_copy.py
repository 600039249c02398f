"""Small arrays of the host on their way to the device."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

ALIGNMENT = 16


def to_device(array: npt.NDArray[Any], device: torch.device) -> Tensor:
    """Return `array` on `device`, without waiting for what runs there.

    On a CPU the tensor shares the array's memory. To a GPU it goes by way of pinned memory, which
    torch keeps until the copy is done: a copy from other memory waits for all work enqueued before.
    """
    tensor = torch.from_numpy(np.ascontiguousarray(array))
    if device.type == "cpu":
        return tensor
    return tensor.pin_memory().to(device, non_blocking=True)


def rows_to_device(rows: Sequence[npt.NDArray[Any]], device: torch.device) -> tuple[Tensor, ...]:
    """Return `rows`, [n] each and of one type, on `device`, by one copy.

    Each begins at a multiple of 16 bytes, as if it were allocated by itself: Triton compiles a
    kernel again for tensors that do not.
    """
    length = len(rows[0])
    per_line = ALIGNMENT // rows[0].itemsize
    packed = np.zeros((len(rows), -(-length // per_line) * per_line), dtype=rows[0].dtype)
    for place, row in zip(packed, rows, strict=True):
        place[:length] = row
    return tuple(row[:length] for row in to_device(packed, device).unbind())
