"""Matrix products of the rows of experts with codes of 4 or 8 bits, which are widened in registers.

Rows are those of expert_matmul.py, and sums those of code_matmul.py: a row has the same bits in any
batch.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from pagewire_worker.checkpoint.coded_matrix import Offset
from pagewire_worker.triton_kernels.code_matmul import CodeTile, code_products
from pagewire_worker.triton_kernels.interpreter import INTERPRETED
from pagewire_worker.triton_kernels.packed_codes import INNER, PackedCodes
from pagewire_worker.triton_kernels.route_tokens import SortedRows


def expert_code_matmul(
    x: Tensor,
    codes: PackedCodes,
    rows: SortedRows,
    tile: CodeTile,
    choices_per_row: int,
    biases: Tensor | None = None,
) -> Tensor:
    """Return x W^T + b of the expert of each choice, [choices, outputs] of the type of `x`.

    Summed in float32, rounded once; values of codes as in code_matmul.

    Args:
        x: [rows, inputs], contiguous; choice c reads row c // `choices_per_row`.
        codes: A stack, one matrix per expert.
        rows: Sorted in blocks of `tile.rows`.
        biases: [experts, outputs] of the type of `x`, contiguous, or None.
    """
    num_outputs = codes.words.shape[1]
    assert x.shape[1] == codes.num_inputs
    assert x.is_contiguous()
    assert codes.words.ndim == 3
    assert len(rows.choices) == len(rows.experts) * tile.rows
    assert biases is None or (biases.dtype == x.dtype and biases.is_contiguous())
    product = torch.empty((rows.num_choices, num_outputs), dtype=x.dtype, device=x.device)
    grid = (len(rows.experts), triton.cdiv(num_outputs, tile.columns))
    _expert_code_matmul[grid](
        x,
        codes.words,
        codes.table,
        codes.scales,
        codes.offsets,
        biases,
        rows.choices,
        rows.experts,
        product,
        num_outputs,
        codes.num_inputs,
        codes.group,
        codes.words.stride(1),
        codes.scales.stride(0),
        choices_per_row,
        ROWS=tile.rows,
        COLUMNS=tile.columns,
        INNER=INNER,
        BITS=codes.bits,
        IS_FLOAT=codes.is_float,
        FIRST=codes.first,
        NUM_PRODUCTS=codes.num_products,
        HAS_MINIMA=codes.offset is Offset.MINIMUM,
        IS_WHOLE=codes.num_inputs % codes.slab == 0,
        INTERPRETED=INTERPRETED,
        num_stages=tile.num_stages,
        num_warps=tile.num_warps,
    )
    return product


# fmt: off
@triton.jit
def _expert_code_matmul(
    x, words, table, scales, offsets, biases, choices, experts, product, num_outputs, num_inputs,
    group, words_stride, scales_stride, choices_per_row, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    INNER: tl.constexpr, BITS: tl.constexpr, IS_FLOAT: tl.constexpr, FIRST: tl.constexpr,
    NUM_PRODUCTS: tl.constexpr, HAS_MINIMA: tl.constexpr, IS_WHOLE: tl.constexpr,
    INTERPRETED: tl.constexpr
):
    block = tl.program_id(0)
    # int64: experts, rows and choices times their length may pass 2**31.
    expert = tl.load(experts + block).to(tl.int64)
    if expert < 0:
        return
    choice = tl.load(choices + block.to(tl.int64) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    is_row = choice >= 0
    source = tl.maximum(choice, 0) // choices_per_row
    columns = tl.program_id(1).to(tl.int64) * COLUMNS + tl.arange(0, COLUMNS)
    is_column, inner = columns < num_outputs, tl.arange(0, INNER)
    lefts = words + (expert * num_outputs + columns[:, None]) * words_stride + inner[None, :]
    rights = x + source[:, None] * num_inputs + inner[None, :]
    scales += expert * scales_stride
    if offsets is not None:
        offsets += expert * scales_stride
    sums = code_products(
        lefts, rights, table, scales, offsets, is_row, columns, num_outputs, num_inputs, group,
        ROWS, COLUMNS, INNER, BITS, IS_FLOAT, FIRST, NUM_PRODUCTS, HAS_MINIMA, IS_WHOLE, INTERPRETED
    )
    if biases is not None:
        bias = biases + expert * num_outputs + columns
        sums += tl.load(bias, mask=is_column, other=0.0).to(tl.float32)[:, None]
    target = product + tl.maximum(choice, 0)[None, :] * num_outputs + columns[:, None]
    is_inside = is_column[:, None] & is_row[None, :]
    tl.store(target, sums.to(product.dtype.element_ty), mask=is_inside)
# fmt: on
