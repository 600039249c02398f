"""Memory that nobody has written yet, as tests see it."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def filled_with_nan() -> Iterator[None]:
    """Have torch fill what `empty` and the like return: NaN, or the largest whole number. What a
    CPU hands out is zeros most often, and hides what reads it."""
    was_filling = torch.utils.deterministic.fill_uninitialized_memory
    torch.utils.deterministic.fill_uninitialized_memory = True
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)
        torch.utils.deterministic.fill_uninitialized_memory = was_filling
