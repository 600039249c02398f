"""Matrix products of the rows of experts, and the weighted sums of their results.

A program computes a tile of one expert, whose rows are gathered from their tokens, as in vLLM's
fused_moe (Kwon et al., 2023). A row has the same bits in any batch if the tile is the same.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from pagewire_worker.triton_kernels.interpreter import INTERPRETED
from pagewire_worker.triton_kernels.route_tokens import SortedRows
from pagewire_worker.triton_kernels.tile_matmul import Tile, add_products

_BLOCK = 1024


def expert_matmul(
    x: Tensor,
    weights: Tensor,
    rows: SortedRows,
    tile: Tile,
    choices_per_row: int,
    biases: Tensor | None = None,
) -> Tensor:
    """Return x W^T + b of the expert of each choice, [choices, outputs] of the type of `x`.

    Summed in float32, rounded once.

    Args:
        x: [rows, inputs], contiguous; choice c reads row c // `choices_per_row`.
        weights: [experts, outputs, inputs] of that type, contiguous.
        rows: Sorted in blocks of `tile.rows`.
        biases: [experts, outputs] of that type, contiguous, or None.
    """
    num_outputs, num_inputs = weights.shape[1:]
    assert x.shape[1] == num_inputs
    assert x.dtype == weights.dtype
    assert len(rows.choices) == len(rows.experts) * tile.rows
    assert x.is_contiguous()
    assert weights.is_contiguous()
    assert biases is None or biases.is_contiguous()
    product = torch.empty((rows.num_choices, num_outputs), dtype=x.dtype, device=x.device)
    grid = (len(rows.experts), triton.cdiv(num_outputs, tile.columns))
    _expert_matmul[grid](
        x,
        weights,
        biases,
        rows.choices,
        rows.experts,
        product,
        num_outputs,
        num_inputs,
        choices_per_row,
        ROWS=tile.rows,
        COLUMNS=tile.columns,
        DEPTH=tile.depth,
        IS_WHOLE=num_inputs % tile.depth == 0,
        INTERPRETED=INTERPRETED,
        num_stages=tile.num_stages,
        num_warps=tile.num_warps,
    )
    return product


@triton.jit
def _expert_matmul(
    x,
    weights,
    biases,
    choices,
    experts,
    product,
    num_outputs,
    num_inputs,
    choices_per_row,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
    IS_WHOLE: tl.constexpr,
    INTERPRETED: tl.constexpr,
):
    block = tl.program_id(0)
    # int64: experts, rows and choices times their length may pass 2**31.
    expert = tl.load(experts + block).to(tl.int64)
    if expert < 0:
        return
    choice = tl.load(choices + block.to(tl.int64) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    is_row = choice[:, None] >= 0
    source = tl.maximum(choice, 0) // choices_per_row
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    is_column = columns[:, None] < num_outputs
    depths = tl.arange(0, DEPTH)
    lefts = x + source[:, None] * num_inputs + depths[None, :]
    rights = weights + (expert * num_outputs + columns[:, None]) * num_inputs + depths[None, :]
    sums = tl.zeros([ROWS, COLUMNS], tl.float32)
    sums = add_products(
        sums, lefts, rights, is_row, is_column, depths, num_inputs, DEPTH, IS_WHOLE, INTERPRETED
    )
    if biases is not None:
        bias = biases + expert * num_outputs + columns
        sums += tl.load(bias, mask=columns < num_outputs, other=0.0).to(tl.float32)[None, :]
    target = product + tl.maximum(choice, 0)[:, None] * num_outputs + columns[None, :]
    tl.store(
        target,
        sums.to(product.dtype.element_ty),
        mask=is_row & (columns[None, :] < num_outputs),
    )


def collect_experts(rows: Tensor, weights: Tensor, shared: Tensor | None) -> Tensor:
    """Return the weighted sums of the rows of each token, [tokens, size] of the type of `rows`.

    Summed in float32 in the order of the choices, the shared expert last; rounded once.

    Args:
        rows: [tokens * chosen, size], contiguous.
        weights: float32 [tokens, chosen + 1]; the last one is that of the shared expert.
        shared: [tokens, size], contiguous, or None.
    """
    num_tokens, size = len(weights), rows.shape[1]
    assert rows.is_contiguous()
    assert shared is None or shared.is_contiguous()
    total = torch.empty((num_tokens, size), dtype=rows.dtype, device=rows.device)
    grid = (num_tokens, triton.cdiv(size, _BLOCK))
    _collect[grid](rows, weights, shared, total, size, CHOSEN=weights.shape[1] - 1, BLOCK=_BLOCK)
    return total


@triton.jit
def _collect(rows, weights, shared, total, size, CHOSEN: tl.constexpr, BLOCK: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    is_inside = columns < size
    sums = tl.zeros([BLOCK], tl.float32)
    for place in tl.static_range(CHOSEN):
        weight = tl.load(weights + token * (CHOSEN + 1) + place)
        row = rows + (token * CHOSEN + place) * size + columns
        sums = tl.fma(tl.load(row, mask=is_inside, other=0.0).to(tl.float32), weight, sums)
    if shared is not None:
        weight = tl.load(weights + token * (CHOSEN + 1) + CHOSEN)
        row = shared + token * size + columns
        sums = tl.fma(tl.load(row, mask=is_inside, other=0.0).to(tl.float32), weight, sums)
    target = total + token * size + columns
    tl.store(target, sums.to(total.dtype.element_ty), mask=is_inside)
