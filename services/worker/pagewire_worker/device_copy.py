"""Small arrays of the host on their way to the device."""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor


def to_device(array: npt.NDArray[Any], device: torch.device) -> Tensor:
    """Return `array` on `device`, without waiting for what runs there.

    On a CPU the tensor shares the array's memory. To a GPU it goes by way of pinned memory, which
    torch keeps until the copy is done: a copy from other memory waits for all work enqueued before.
    """
    tensor = torch.from_numpy(np.ascontiguousarray(array))
    if device.type == "cpu":
        return tensor
    return tensor.pin_memory().to(device, non_blocking=True)
