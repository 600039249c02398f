"""Finds the largest value of rows."""

import numpy as np
import torch
from torch import Tensor


def argmax_of_rows(values: Tensor) -> Tensor:
    """Return the place of the largest value per row of [rows, n] float32, the first of equal ones.

    A NaN counts as the largest. The result is [rows] int64.
    """
    if values.device.type != "cpu":
        return values.argmax(dim=1)
    # Of 16 rows of a large vocabulary, torch's takes five to ten times as long.
    rows = values.numpy()
    places = np.fromiter((row.argmax() for row in rows), dtype=np.int64, count=len(rows))
    return torch.from_numpy(places)
