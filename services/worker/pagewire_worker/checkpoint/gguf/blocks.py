"""Formats of llama.cpp's blocks, as codes with scales.

Layout: ggml-common.h and dequantize_row_* of ggml-quants.c (llama.cpp). A row is a sequence of
blocks of 32 or 256 values. Small scales within a block are multiplied out, which is exact in
float32, and kept beside their factors. Other formats are dequantized by the package gguf.

numpy computes them, in few operations over whole words: torch's threads wait for each other, and
where other work takes a core they take many times as long.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pagewire_shared.errors import StartupError
from pagewire_worker.checkpoint.coded_matrix import CodedMatrix, FactoredScales, Offset
from pagewire_worker.checkpoint.stored.mxfp4 import TABLE, powers

Array = npt.NDArray[Any]

PLAIN: Final = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
"""Formats without blocks."""

_PAIRS: Final = np.arange(0, 8, 2, dtype=np.uint8)
"""The first bit of each pair in a byte."""

_LOW_NIBBLES: Final = np.uint64(0x0F0F0F0F0F0F0F0F)


@dataclass(frozen=True, slots=True)
class BlockFormat:
    """One format.

    Attributes:
        size: Values of a block.
        fields: A block, as the structure of that name in ggml-common.h.
        read: Blocks [outputs, blocks of a row] -> the matrix.
    """

    size: int
    fields: np.dtype[np.void]
    read: Callable[[Array], CodedMatrix]


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
    num_bytes = known.fields.itemsize
    if shape[1] % known.size or data.shape[1] != shape[1] // known.size * num_bytes:
        raise StartupError(
            f"the tensor {name} has {data.shape[1]} bytes per row; {shape[1]} values of {kind} are"
            f" blocks of {known.size} in {num_bytes} bytes",
            field="model",
        )
    return known.read(np.ascontiguousarray(data.numpy()).view(known.fields))


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


def _tensor(array: Array) -> Tensor:
    """Return an array [outputs, blocks, ...] as a tensor [outputs, all of a row]."""
    return torch.from_numpy(np.ascontiguousarray(array)).flatten(1)


def _nibbles(words: Array) -> Array:
    """Return the low nibbles of the bytes of each block, then the high ones, uint8.

    Args:
        words: uint64 [..., words].
    """
    size = words.shape[-1]
    result = np.empty((*words.shape[:-1], 2, size), dtype=np.uint64)
    # Word by word: an operation on the short last dimension takes several times as long.
    for place in range(size):
        word = words[..., place]
        result[..., 0, place] = word & _LOW_NIBBLES
        result[..., 1, place] = (word >> np.uint64(4)) & _LOW_NIBBLES
    return result.view(np.uint8).reshape(*words.shape[:-1], 16 * size)


def _table(first: int) -> Tensor:
    """Return 16 numbers in a row."""
    return torch.arange(first, first + 16, dtype=torch.float32)


def _fifth_bits(bits: Array) -> Array:
    """Return 16 for each bit that is set, else 0: [..., 8 * bytes]."""
    return np.unpackbits(bits, axis=-1, bitorder="little") << 4


def _q4_0(blocks: Array) -> CodedMatrix:
    return CodedMatrix(
        codes=_tensor(_nibbles(blocks["qs"])), table=_table(-8), scales=_tensor(blocks["d"])
    )


def _q4_1(blocks: Array) -> CodedMatrix:
    return CodedMatrix(
        codes=_tensor(_nibbles(blocks["qs"])),
        table=_table(0),
        scales=_tensor(blocks["d"]),
        offsets=_tensor(blocks["m"]),
        offset=Offset.MINIMUM,
    )


def _q5_0(blocks: Array) -> CodedMatrix:
    codes = (_nibbles(blocks["qs"]) | _fifth_bits(blocks["qh"])).view(np.int8) - np.int8(16)
    return CodedMatrix(codes=_tensor(codes), table=None, scales=_tensor(blocks["d"]))


def _q5_1(blocks: Array) -> CodedMatrix:
    codes = _nibbles(blocks["qs"]) | _fifth_bits(blocks["qh"])
    return CodedMatrix(
        codes=_tensor(codes.view(np.int8)),
        table=None,
        scales=_tensor(blocks["d"]),
        offsets=_tensor(blocks["m"]),
        offset=Offset.MINIMUM,
    )


def _q8_0(blocks: Array) -> CodedMatrix:
    codes = np.ascontiguousarray(blocks["qs"]).view(np.int8)
    return CodedMatrix(codes=_tensor(codes), table=None, scales=_tensor(blocks["d"]))


def _with_small_scales(blocks: Array, codes: Array, table: Tensor | None) -> CodedMatrix:
    """Return a matrix with scales and minima of 6 bits in 12 bytes (get_scale_min_k4)."""
    low, middle, high = np.split(blocks["scales"], 3, axis=-1)
    scales = np.concatenate((low & 63, (high & 15) | ((low >> 6) << 4)), axis=-1)
    minima = np.concatenate((middle & 63, (high >> 4) | ((middle >> 6) << 4)), axis=-1)
    return _factored(codes, table, scales, blocks["d"], minima, -blocks["dmin"])


def _factored(
    codes: Array,
    table: Tensor | None,
    scales: Array,
    factors: Array,
    minima: Array | None = None,
    minimum_factors: Array | None = None,
) -> CodedMatrix:
    """Return a matrix whose scales and minima are integers times a factor of their block."""
    offsets, small = None, None
    if minima is not None and minimum_factors is not None:
        offsets = _products(minima, minimum_factors)
        small = _tensor(minima.astype(np.int8)), _tensor(minimum_factors[..., None])
    return CodedMatrix(
        codes=_tensor(codes),
        table=table,
        scales=_products(scales, factors),
        offsets=offsets,
        offset=Offset.MINIMUM,
        factored=FactoredScales(
            _tensor(scales.astype(np.int8)), _tensor(factors[..., None]), *(small or ())
        ),
    )


def _products(numbers: Array, factors: Array) -> Tensor:
    """Return small numbers [outputs, blocks, groups] times the factors of their blocks."""
    return _tensor(factors.astype(np.float32)[..., None] * numbers)


def _q4_k(blocks: Array) -> CodedMatrix:
    return _with_small_scales(blocks, _nibbles(blocks["qs"]), _table(0))


def _q5_k(blocks: Array) -> CodedMatrix:
    # Bit g of byte i belongs to value i of group g.
    high = blocks["qh"][..., None, :] >> np.arange(8, dtype=np.uint8)[:, None]
    codes = _nibbles(blocks["qs"]).reshape(*blocks.shape, 8, 32) | ((high & 1) << 4)
    return _with_small_scales(blocks, codes.view(np.int8), None)


def _q6_k(blocks: Array) -> CodedMatrix:
    low = _nibbles(blocks["ql"])
    high = blocks["qh"].reshape(*blocks.shape, 2, 1, 32) >> _PAIRS[:, None]
    codes = low.reshape(*blocks.shape, 2, 4, 32) | ((high & 3) << 4)
    return _factored(codes.view(np.int8) - np.int8(32), None, blocks["scales"], blocks["d"])


def _mxfp4(blocks: Array) -> CodedMatrix:
    return CodedMatrix(
        codes=_tensor(_nibbles(blocks["qs"])),
        table=torch.tensor(TABLE),
        scales=powers(torch.from_numpy(np.ascontiguousarray(blocks["e"]))),
    )


def _block(*fields: tuple[Any, ...]) -> np.dtype[np.void]:
    return np.dtype(list(fields))


_D: Final = ("d", "<f2")
_M: Final = ("m", "<f2")
_SCALES: Final[Sequence[tuple[Any, ...]]] = (_D, ("dmin", "<f2"), ("scales", "u1", 12))

BLOCKS: Final[Mapping[str, BlockFormat]] = {
    "Q4_0": BlockFormat(32, _block(_D, ("qs", "<u8", 2)), _q4_0),
    "Q4_1": BlockFormat(32, _block(_D, _M, ("qs", "<u8", 2)), _q4_1),
    "Q5_0": BlockFormat(32, _block(_D, ("qh", "u1", 4), ("qs", "<u8", 2)), _q5_0),
    "Q5_1": BlockFormat(32, _block(_D, _M, ("qh", "u1", 4), ("qs", "<u8", 2)), _q5_1),
    "Q8_0": BlockFormat(32, _block(_D, ("qs", "V32")), _q8_0),
    "Q4_K": BlockFormat(256, _block(*_SCALES, ("qs", "<u8", (4, 4))), _q4_k),
    "Q5_K": BlockFormat(256, _block(*_SCALES, ("qh", "u1", 32), ("qs", "<u8", (4, 4))), _q5_k),
    "MXFP4": BlockFormat(32, _block(("e", "u1"), ("qs", "<u8", 2)), _mxfp4),
    "Q6_K": BlockFormat(
        256, _block(("ql", "<u8", (2, 8)), ("qh", "u1", 64), ("scales", "i1", 16), _D), _q6_k
    ),
}
"""Formats that are read as codes, by llama.cpp's names."""
