"""Maps names to attention implementations."""

import logging
import math
from collections.abc import Callable, Mapping, Sequence

import torch

from pagewire_worker.attention.reference import ReferenceAttention
from pagewire_worker.attention.sdpa import SdpaAttention
from pagewire_worker.attention.windowed import WindowedAttention
from pagewire_worker.backend.attention import AttentionBackend, AttentionKind
from pagewire_worker.backend.backend import SharingAttention
from pagewire_worker.triton_kernels.availability import check_triton, why_no_kernels

_logger = logging.getLogger(__name__)

Factory = Callable[[torch.device, torch.dtype, int, AttentionKind, bool], AttentionBackend]
"""(device, type, block size, kind, whether to be independent of the batch) -> implementation."""


def _fused(
    device: torch.device, dtype: torch.dtype, block_size: int, kind: AttentionKind, exact: bool
) -> AttentionBackend:
    if kind.softcap is not None or kind.has_sinks:
        # The fused kernel cannot change scores before the softmax, and keeps its sums to itself.
        return ReferenceAttention(kind)
    if kind.window is None:
        return SdpaAttention(device, dtype, block_size, kind.scale)
    return WindowedAttention(
        device=device, dtype=dtype, block_size=block_size, window=kind.window, scale=kind.scale
    )


def _triton(
    device: torch.device, dtype: torch.dtype, block_size: int, kind: AttentionKind, exact: bool
) -> AttentionBackend:
    check_triton("--attention-backend: triton", "attention_backend", device)
    from pagewire_worker.attention.triton import CHUNK_ROWS, EXACT_CHUNK_ROWS, TritonAttention

    return TritonAttention(device, kind, chunk_rows=EXACT_CHUNK_ROWS if exact else CHUNK_ROWS)


FACTORIES: Mapping[str, Factory] = {
    "reference": lambda device, dtype, block_size, kind, exact: ReferenceAttention(kind),
    "sdpa": _fused,
    "triton": _triton,
}

AUTO = "sdpa"


def pick_attention(name: str, capability: tuple[int, int] | None) -> str:
    """Return the implementation that `name` selects for the native decoder.

    Args:
        name: One of FACTORIES, or "auto": "triton" on CUDA, if it runs there.
        capability: Compute capability of the device; None for a CPU.
    """
    if name != "auto" or capability is None:
        return name
    reason = why_no_kernels(capability)
    if reason is None:
        return "triton"
    _logger.warning("without kernels for CUDA, which is slower: %s", reason)
    return AUTO


def make_attention(
    name: str,
    device: torch.device,
    dtype: torch.dtype,
    block_size: int,
    kind: AttentionKind,
    *,
    exact: bool = False,
) -> AttentionBackend:
    """Return the implementation called `name`; "auto" is the fastest one for the device.

    Args:
        name: One of FACTORIES, or "auto".
        exact: Whether to be batch invariant, if the implementation can; this is slower.
    """
    return FACTORIES[AUTO if name == "auto" else name](device, dtype, block_size, kind, exact)


def make_attentions(
    name: str,
    device: torch.device,
    dtype: torch.dtype,
    block_size: int,
    kinds: Sequence[AttentionKind],
    *,
    exact: bool = False,
) -> dict[AttentionKind, AttentionBackend]:
    """Return an implementation for each of `kinds`; they share the scratch memory.

    Args:
        kinds: Of the layers of a model, some of them equal.
        name, exact: As of `make_attention`.
    """
    made = {
        kind: make_attention(name, device, dtype, block_size, kind, exact=exact)
        for kind in dict.fromkeys(kinds)
    }
    # The kind that sees the most positions needs the most memory.
    owner, *others = sorted(made, key=_seen_positions, reverse=True)
    for other in others:
        one = made[other]
        if isinstance(one, SharingAttention):
            one.share_scratch(made[owner])
    return made


def _seen_positions(kind: AttentionKind) -> float:
    return math.inf if kind.window is None else kind.window
