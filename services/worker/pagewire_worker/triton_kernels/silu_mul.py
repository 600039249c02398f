"""Computes silu(gate) * up of the gated MLP (SwiGLU; Shazeer, 2020), from the merged product."""

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 1024


def silu_mul(gate_up: Tensor) -> Tensor:
    """Return silu(gate) * up, [tokens, size], of `gate_up` [tokens, 2 * size]: gates first.

    Computed in float32 and rounded once to the type of `gate_up`, whose rows are contiguous.
    """
    num_tokens, width = gate_up.shape
    size = width // 2
    product = torch.empty((num_tokens, size), dtype=gate_up.dtype, device=gate_up.device)
    grid = (num_tokens, triton.cdiv(size, _BLOCK))
    _silu_mul[grid](gate_up, product, gate_up.stride(0), size, BLOCK=_BLOCK)
    return product


@triton.jit
def _silu_mul(gate_up, product, gate_up_stride, size, BLOCK: tl.constexpr):
    # int64: rows times their length may pass 2**31.
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    is_inside = columns < size
    gates = gate_up + row * gate_up_stride + columns
    gate = tl.load(gates, mask=is_inside, other=0.0).to(tl.float32)
    up = tl.load(gates + size, mask=is_inside, other=0.0).to(tl.float32)
    value = gate / (1.0 + tl.exp(-gate)) * up
    tl.store(product + row * size + columns, value.to(product.dtype.element_ty), mask=is_inside)
