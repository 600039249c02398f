"""Name to attention implementation."""

from collections.abc import Callable, Mapping

import torch

from pagewire_worker.attention.base import AttentionBackend
from pagewire_worker.attention.reference import ReferenceAttention
from pagewire_worker.attention.sdpa import SdpaAttention
from pagewire_worker.attention.windowed import WindowedAttention

Factory = Callable[[torch.device, torch.dtype, int, int | None], AttentionBackend]
"""(device, type, block size, window or None) -> implementation."""

FACTORIES: Mapping[str, Factory] = {
    "reference": lambda device, dtype, block_size, window: ReferenceAttention(window),
    "sdpa": lambda device, dtype, block_size, window: (
        SdpaAttention(device, dtype, block_size)
        if window is None
        else WindowedAttention(device, dtype, block_size, window)
    ),
}

AUTO = "sdpa"


def make_attention(
    name: str, device: torch.device, dtype: torch.dtype, block_size: int, window: int | None
) -> AttentionBackend:
    """Return the implementation called `name`; "auto" is the fastest one for the device.

    Args:
        name: One of FACTORIES, or "auto".
        device, dtype: Of the model.
        block_size: Tokens per block.
        window: Positions that a token attends to, itself included; None for all.
    """
    return FACTORIES[AUTO if name == "auto" else name](device, dtype, block_size, window)
