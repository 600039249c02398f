"""Which adapter each token of a step has."""

from dataclasses import dataclass
from typing import Final

from torch import Tensor

NO_ADAPTER: Final = -1
"""In the place of an adapter slot: the model alone."""


@dataclass(frozen=True, slots=True)
class AdapterRows:
    """The adapters of a step, of which at least one token has one.

    Attributes:
        slots: [tokens] int64 on the device, the adapter slot of each token, or NO_ADAPTER.
        used: The adapter slots in it, ascending.
    """

    slots: Tensor
    used: tuple[int, ...]
