"""Formats of llama.cpp's blocks, as codes with scales.

Layout: ggml-common.h and dequantize_row_* of ggml-quants.c (llama.cpp). A row is a sequence of
blocks of 32 or 256 values. Scales of 6 bits within a block are multiplied out, which is exact in
float32. Other formats are dequantized by the package gguf.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Final

import torch
from torch import Tensor

from pagewire_shared.errors import StartupError
from pagewire_worker.checkpoint.coded_matrix import CodedMatrix, Offset

PLAIN: Final = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
"""Formats without blocks."""

_SMALL, _LARGE = 32, 256


@dataclass(frozen=True, slots=True)
class BlockFormat:
    """One format.

    Attributes:
        size, num_bytes: Values and bytes of a block.
        read: Blocks, uint8 [outputs, blocks of a row, num_bytes] -> the matrix.
    """

    size: int
    num_bytes: int
    read: Callable[[Tensor], CodedMatrix]


def read_blocks(kind: str, data: Tensor, shape: tuple[int, int], name: str) -> CodedMatrix | Tensor:
    """Return the matrix in `data`: codes, or values in float32 for formats that are dequantized.

    Args:
        kind: Name of the format.
        data: uint8 [outputs, bytes of a row].
        shape: [outputs, inputs].
        name: For errors.

    Raises:
        StartupError: The data has another size, or the format is not known.
    """
    known = BLOCKS.get(kind)
    if known is None:
        return _dequantized(kind, data, shape, name)
    if shape[1] % known.size or data.shape[1] != shape[1] // known.size * known.num_bytes:
        raise StartupError(
            f"the tensor {name} has {data.shape[1]} bytes per row; {shape[1]} values of {kind} are"
            f" blocks of {known.size} in {known.num_bytes} bytes",
            field="model",
        )
    return known.read(data.view(shape[0], -1, known.num_bytes))


def _dequantized(kind: str, data: Tensor, shape: tuple[int, int], name: str) -> Tensor:
    if find_spec("gguf") is None:
        raise StartupError(
            f"the tensor {name} is {kind}, which needs the package gguf: pip install"
            " 'pagewire[gguf]'",
            field="model",
        )
    from gguf import GGMLQuantizationType
    from gguf.quants import dequantize

    try:
        values = dequantize(data.numpy(), GGMLQuantizationType[kind])
    except (KeyError, NotImplementedError, ValueError) as error:
        raise StartupError(f"the tensor {name} is {kind}: {error}", field="model") from error
    return torch.from_numpy(values).view(shape)


def _halves(blocks: Tensor, start: int) -> Tensor:
    """Return float16 numbers of each block from byte `start` on, [outputs, blocks]."""
    return blocks[..., start : start + 2].contiguous().view(torch.float16).squeeze(-1)


def _nibbles(part: Tensor) -> Tensor:
    """Return the low nibbles of the bytes of each block, then the high ones."""
    return torch.cat((part & 15, part >> 4), dim=-1)


def _rows(codes: Tensor) -> Tensor:
    return codes.flatten(1)


def _table(first: int) -> Tensor:
    """Return 16 numbers in a row."""
    return torch.arange(first, first + 16, dtype=torch.float32)


def _fifth_bits(bits: Tensor) -> Tensor:
    """Return 16 for each bit of 4 bytes that is set, else 0: [..., 32]."""
    places = torch.arange(8, dtype=torch.uint8)
    return (((bits.unsqueeze(-1) >> places) & 1) << 4).flatten(-2)


def _q4_0(blocks: Tensor) -> CodedMatrix:
    return CodedMatrix(
        codes=_rows(_nibbles(blocks[..., 2:])), table=_table(-8), scales=_halves(blocks, 0)
    )


def _q4_1(blocks: Tensor) -> CodedMatrix:
    return CodedMatrix(
        codes=_rows(_nibbles(blocks[..., 4:])),
        table=_table(0),
        scales=_halves(blocks, 0),
        offsets=_halves(blocks, 2),
        offset=Offset.MINIMUM,
    )


def _q5_0(blocks: Tensor) -> CodedMatrix:
    codes = _nibbles(blocks[..., 6:]) | _fifth_bits(blocks[..., 2:6])
    return CodedMatrix(
        codes=_rows(codes.to(torch.int8) - 16), table=None, scales=_halves(blocks, 0)
    )


def _q5_1(blocks: Tensor) -> CodedMatrix:
    codes = _nibbles(blocks[..., 8:]) | _fifth_bits(blocks[..., 4:8])
    return CodedMatrix(
        codes=_rows(codes.to(torch.int8)),
        table=None,
        scales=_halves(blocks, 0),
        offsets=_halves(blocks, 2),
        offset=Offset.MINIMUM,
    )


def _q8_0(blocks: Tensor) -> CodedMatrix:
    codes = blocks[..., 2:].contiguous().view(torch.int8)
    return CodedMatrix(codes=_rows(codes), table=None, scales=_halves(blocks, 0))


def _small_scales(packed: Tensor) -> tuple[Tensor, Tensor]:
    """Return scales and minima of 6 bits in 12 bytes, [..., 8] each (get_scale_min_k4)."""
    low, middle, high = packed.split(4, dim=-1)
    scales = torch.cat((low & 63, (high & 15) | ((low >> 6) << 4)), dim=-1)
    minima = torch.cat((middle & 63, (high >> 4) | ((middle >> 6) << 4)), dim=-1)
    return scales, minima


def _with_small_scales(blocks: Tensor, codes: Tensor, table: Tensor | None) -> CodedMatrix:
    """Return a matrix whose blocks begin with d, dmin and the scales and minima of 8 groups."""
    scales, minima = _small_scales(blocks[..., 4:16])
    factor, lowest = _halves(blocks, 0).float(), _halves(blocks, 2).float()
    return CodedMatrix(
        codes=_rows(codes),
        table=table,
        scales=_rows(factor.unsqueeze(-1) * scales),
        offsets=_rows(-lowest.unsqueeze(-1) * minima),
        offset=Offset.MINIMUM,
    )


def _pairs_of_groups(part: Tensor) -> Tensor:
    """Return the values of 4 x 32 bytes: each 32 hold two groups, the first in the low nibbles."""
    return _nibbles(part.unflatten(-1, (4, 32))).flatten(-2)


def _q4_k(blocks: Tensor) -> CodedMatrix:
    return _with_small_scales(blocks, _pairs_of_groups(blocks[..., 16:]), _table(0))


def _q5_k(blocks: Tensor) -> CodedMatrix:
    # Bit g of a byte belongs to group g.
    places = torch.arange(8, dtype=torch.uint8).unsqueeze(-1)
    fifth = (((blocks[..., 16:48].unsqueeze(-2) >> places) & 1) << 4).flatten(-2)
    codes = _pairs_of_groups(blocks[..., 48:]) | fifth
    return _with_small_scales(blocks, codes.to(torch.int8), None)


def _q6_k(blocks: Tensor) -> CodedMatrix:
    low = _nibbles(blocks[..., :128].unflatten(-1, (2, 64)))
    places = torch.arange(0, 8, 2, dtype=torch.uint8).unsqueeze(-1)
    high = (blocks[..., 128:192].unflatten(-1, (2, 1, 32)) >> places) & 3
    codes = (low | (high.flatten(-2) << 4)).flatten(-2)
    small = blocks[..., 192:208].contiguous().view(torch.int8)
    factor = _halves(blocks, 208).float()
    return CodedMatrix(
        codes=_rows(codes.to(torch.int8) - 32),
        table=None,
        scales=_rows(factor.unsqueeze(-1) * small),
    )


BLOCKS: Final[Mapping[str, BlockFormat]] = {
    "Q4_0": BlockFormat(_SMALL, 18, _q4_0),
    "Q4_1": BlockFormat(_SMALL, 20, _q4_1),
    "Q5_0": BlockFormat(_SMALL, 22, _q5_0),
    "Q5_1": BlockFormat(_SMALL, 24, _q5_1),
    "Q8_0": BlockFormat(_SMALL, 34, _q8_0),
    "Q4_K": BlockFormat(_LARGE, 144, _q4_k),
    "Q5_K": BlockFormat(_LARGE, 176, _q5_k),
    "Q6_K": BlockFormat(_LARGE, 210, _q6_k),
}
"""Formats that are read as codes, by llama.cpp's names."""
