"""Activations of MLPs, from the product of their first matrix, with and without a gate."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from pagewire_worker.families.plan import Activation, ClampedSwiglu

_BLOCK = 1024


def activate(
    products: Tensor,
    activation: Activation = "silu",
    *,
    is_gated: bool = True,
    clamped: ClampedSwiglu | None = None,
) -> Tensor:
    """Return activation(gate) * up (Shazeer, 2020), or activation(products) without a gate.

    Computed in float32 and rounded once to the type of `products`, whose rows are contiguous.

    Args:
        products: [tokens, 2 * size], gates first; [tokens, size] without a gate.
        clamped: Takes the place of the activation and the product with the gate.

    Returns:
        [tokens, size].
    """
    num_tokens, width = products.shape
    size = width // 2 if is_gated else width
    activated = torch.empty((num_tokens, size), dtype=products.dtype, device=products.device)
    grid = (num_tokens, triton.cdiv(size, _BLOCK))
    _activate[grid](
        products,
        activated,
        products.stride(0),
        size,
        None if clamped is None else clamped.limit,
        None if clamped is None else clamped.slope,
        BLOCK=_BLOCK,
        ACTIVATION=activation,
        IS_GATED=is_gated,
    )
    return activated


@triton.jit
def _activate(
    products,
    activated,
    products_stride,
    size,
    limit,
    slope,
    BLOCK: tl.constexpr,
    ACTIVATION: tl.constexpr,
    IS_GATED: tl.constexpr,
):
    # int64: rows times their length may pass 2**31.
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    is_inside = columns < size
    gates = products + row * products_stride + columns
    gate = tl.load(gates, mask=is_inside, other=0.0).to(tl.float32)
    if limit is not None:
        # Comparisons keep NaN, which a minimum may drop.
        gate = tl.where(gate > limit, limit, gate)
        value = gate / (1.0 + tl.exp(-slope * gate))
    elif ACTIVATION == "silu":
        value = gate / (1.0 + tl.exp(-gate))
    elif ACTIVATION == "gelu":
        value = 0.5 * gate * (1.0 + tl.erf(gate * 0.7071067811865476))
    else:
        inner = 0.7978845608028654 * (gate + 0.044715 * gate * gate * gate)
        # (1 + tanh(inner)) / 2, with a power that cannot overflow
        power = tl.exp(-2.0 * tl.abs(inner))
        value = gate * tl.where(inner >= 0.0, 1.0, power) / (1.0 + power)
    if IS_GATED:
        up = tl.load(gates + size, mask=is_inside, other=0.0).to(tl.float32)
        if limit is not None:
            up = tl.where(up > limit, limit, tl.where(up < -limit, -limit, up)) + 1.0
        value = value * up
    tl.store(activated + row * size + columns, value.to(activated.dtype.element_ty), mask=is_inside)
