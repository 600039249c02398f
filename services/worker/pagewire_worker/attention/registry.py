"""Name to attention implementation."""

from collections.abc import Callable, Mapping

import torch

from pagewire_worker.attention.base import AttentionBackend
from pagewire_worker.attention.reference import ReferenceAttention
from pagewire_worker.attention.sdpa import SdpaAttention

Factory = Callable[[torch.device, torch.dtype, int], AttentionBackend]
"""(device, type, block size) -> implementation."""

FACTORIES: Mapping[str, Factory] = {
    "reference": lambda device, dtype, block_size: ReferenceAttention(),
    "sdpa": SdpaAttention,
}

AUTO = "sdpa"


def make_attention(
    name: str, device: torch.device, dtype: torch.dtype, block_size: int
) -> AttentionBackend:
    """Return the implementation called `name`; "auto" is the fastest one for the device."""
    return FACTORIES[AUTO if name == "auto" else name](device, dtype, block_size)
