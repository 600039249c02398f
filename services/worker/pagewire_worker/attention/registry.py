"""Name to attention implementation."""

from collections.abc import Callable, Mapping

import torch

from pagewire_worker.attention.base import AttentionBackend, AttentionKind
from pagewire_worker.attention.reference import ReferenceAttention
from pagewire_worker.attention.sdpa import SdpaAttention
from pagewire_worker.attention.windowed import WindowedAttention

Factory = Callable[[torch.device, torch.dtype, int, AttentionKind], AttentionBackend]
"""(device, type, block size, kind) -> implementation."""


def _fused(
    device: torch.device, dtype: torch.dtype, block_size: int, kind: AttentionKind
) -> AttentionBackend:
    if kind.softcap is not None:
        # The fused kernel has no place between scores and softmax.
        return ReferenceAttention(kind)
    if kind.window is None:
        return SdpaAttention(device, dtype, block_size, kind.scale)
    return WindowedAttention(device, dtype, block_size, kind.window, kind.scale)


FACTORIES: Mapping[str, Factory] = {
    "reference": lambda device, dtype, block_size, kind: ReferenceAttention(kind),
    "sdpa": _fused,
}

AUTO = "sdpa"


def make_attention(
    name: str, device: torch.device, dtype: torch.dtype, block_size: int, kind: AttentionKind
) -> AttentionBackend:
    """Return the implementation called `name`; "auto" is the fastest one for the device.

    Args:
        name: One of FACTORIES, or "auto".
        device, dtype: Of the model.
        block_size: Tokens per block.
        kind: Window, scale and softcap.
    """
    return FACTORIES[AUTO if name == "auto" else name](device, dtype, block_size, kind)
