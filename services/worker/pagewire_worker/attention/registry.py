"""Name to attention implementation."""

from collections.abc import Callable, Mapping

import torch

from pagewire_shared.errors import StartupError
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


def _triton(
    device: torch.device, dtype: torch.dtype, block_size: int, kind: AttentionKind
) -> AttentionBackend:
    try:
        from pagewire_worker.attention.triton import TritonAttention
        from pagewire_worker.triton_kernels.interpreter import INTERPRETED
    except ImportError as error:
        raise StartupError(
            f"--attention-backend: triton is not installed ({error}): pip install 'pagewire[cuda]'",
            field="attention_backend",
        ) from error
    if device.type != "cuda" and not INTERPRETED:
        raise StartupError(
            f"--attention-backend: triton runs on CUDA, the device is {device.type}",
            field="attention_backend",
        )
    return TritonAttention(device, kind)


FACTORIES: Mapping[str, Factory] = {
    "reference": lambda device, dtype, block_size, kind: ReferenceAttention(kind),
    "sdpa": _fused,
    "triton": _triton,
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
