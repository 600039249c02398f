"""Single kernels on random data, and what plain float64 makes of the same."""

import ctypes
import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from pagewire_worker.cpu_kernels import abi
from pagewire_worker.cpu_kernels.library import (
    EMULATED,
    TYPES,
    KernelPool,
    KernelsMissingError,
    instruction_sets,
    pointer,
)
from pagewire_worker.cpu_kernels.packing import PackedWeights, Part, Storage, WeightArena, pack
from pagewire_worker.kv.scaled_rows import SCALED, row_size

STEP = {torch.float32: 1, torch.bfloat16: 2}
"""Inputs that a panel stores side by side."""

ROUNDING = {torch.float32: 2e-6, torch.bfloat16: 2**-8}
"""Of a value that is stored in the type."""


def pools(*num_threads: int) -> list[Any]:
    """Return a parameter per instruction set that runs here, and number of threads.

    The emulation of AMX stands in where there is none; test_tiles.py compares the two.
    """
    try:
        names = [name for name in instruction_sets() if name != EMULATED or not has_tiles()]
    except KernelsMissingError as error:
        return [pytest.param(None, marks=pytest.mark.skip(reason=f"no kernels: {error}"))]
    return [
        pytest.param(_pool(count, name), id=f"{name}-{count}")
        for name in names
        for count in num_threads
    ]


def has_tiles() -> bool:
    """Return whether this machine has the tile registers of AMX."""
    return has_kernels() and "amx" in instruction_sets()


@functools.cache
def _pool(num_threads: int, instruction_set: str) -> KernelPool:
    return KernelPool(num_threads, instruction_set)


def has_kernels() -> bool:
    """Return whether there are kernels that run here."""
    try:
        return bool(instruction_sets())
    except KernelsMissingError:
        return False


needs_kernels = pytest.mark.skipif(not has_kernels(), reason="there are no kernels for this CPU")


def packed(
    pool: KernelPool, weight: Tensor, bias: Tensor | None = None, kind: int | None = None
) -> PackedWeights:
    """Return `weight` [outputs, inputs] packed, in its own type or as another kind."""
    storage = Storage.of(TYPES[weight.dtype] if kind is None else kind, *weight.shape)
    biases = [] if bias is None else [Part(bias)]
    return pack(pool, WeightArena(storage.num_bytes), storage, [Part(weight)], biases)


def prepared_rows(linear: PackedWeights, num_rows: int) -> Tensor:
    """Return memory for the quantized input of a product."""
    return torch.empty(num_rows * linear.storage.prepared_row_bytes, dtype=torch.uint8)


def multiply(pool: KernelPool, linear: PackedWeights, x: Tensor) -> Tensor:
    """Return x W^T + bias, float32 [rows, padded outputs]."""
    stride = linear.storage.num_outputs
    y, structure = torch.full((len(x), stride), float("nan")), linear.structure()
    memory = prepared_rows(linear, len(x))
    pool.linear(TYPES[x.dtype], structure, pointer(x), len(x), pointer(memory), pointer(y), stride)
    return y


@dataclass(frozen=True, slots=True)
class Shape:
    """What attention depends on."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    block_size: int
    window: int
    dtype: torch.dtype
    scale: float | None = None
    softcap: float = 0.0
    has_sinks: bool = False
    latent_dim: int = 0
    has_scales: bool = False  # keys and values are int8

    @property
    def sinks(self) -> Tensor | None:
        """Of the heads: some nearly hide all positions, and some nearly change nothing."""
        return torch.linspace(-4.0, 9.0, self.num_heads) if self.has_sinks else None

    @property
    def score_scale(self) -> float:
        """Factor of the scores."""
        return self.head_dim**-0.5 if self.scale is None else self.scale


class PagedAttention:
    """One layer's cache, filled with NaN, and the kernels that write and read it.

    Args:
        pool: Runs them.
        shape: Of the layer.
        num_blocks: Of the cache.
        norms: Weights of the norms of query and key heads, [2, head_dim], or None.
        num_positions: Of the rotary table, which is random: nothing depends on what it holds.
    """

    def __init__(
        self,
        pool: KernelPool,
        shape: Shape,
        num_blocks: int,
        norms: Tensor | None = None,
        num_positions: int = 4096,
    ) -> None:
        self.shape = shape
        self._pool = pool
        generator = torch.Generator().manual_seed(1)
        angles = torch.rand(num_positions, shape.head_dim // 2, generator=generator) * 6
        self.cosines, self.sines = angles.cos(), angles.sin()
        dtype = SCALED if shape.has_scales else shape.dtype
        width = row_size(shape.head_dim, dtype)
        size = (num_blocks, shape.block_size, shape.num_kv_heads, width)
        self.key, self.value = (torch.empty(size, dtype=dtype) for _ in range(2))
        for part in (self.key, self.value):
            part.view(torch.uint8).fill_(255)  # NaN in every type, scales too
        self._norms = norms
        query_norm, key_norm = (
            (None, None) if norms is None else (_head_norm(weight) for weight in norms)
        )
        self._sinks = shape.sinks
        self._attention = abi.AttentionArgs(
            query_norm=query_norm,
            key_norm=key_norm,
            cosines=pointer(self.cosines),
            sines=pointer(self.sines),
            key=pointer(self.key),
            value=None if shape.latent_dim else pointer(self.value),
            sinks=pointer(self._sinks),
            window=shape.window,
            score_scale=shape.score_scale,
            softcap=shape.softcap,
        )
        self._model = abi.Model(
            type=TYPES[shape.dtype],
            kv_type=abi.INT8 if shape.has_scales else TYPES[shape.dtype],
            num_layers=1,
            num_heads=shape.num_heads,
            num_kv_heads=shape.num_kv_heads,
            head_dim=shape.head_dim,
            latent_dim=shape.latent_dim,
            block_size=shape.block_size,
        )

    def attend_latents(self, batch: "Batch", query: Tensor, keys: Tensor) -> Tensor:
        """Store `keys` [tokens, head_dim], the latents of a batch, and attend.

        Args:
            query: [tokens, heads, head_dim] of the type of the cache.

        Returns:
            [tokens, heads, latent_dim].
        """
        shape = self.shape
        for slot, key in zip(batch.slots, keys, strict=True):
            block, at = divmod(slot, shape.block_size)
            place = position_of(self.key[block], at, is_key=True)
            place.copy_(key.view(place.shape))
        size = (shape.num_heads, batch.num_tokens, shape.latent_dim)
        attended, scratch = torch.full(size, float("nan"), dtype=shape.dtype), abi.Scratch()
        scratch.buffers[abi.QUERY] = pointer(query)
        scratch.buffers[abi.ATTENDED] = pointer(attended)
        self._pool.attend(self._model, batch.structure, scratch, self._attention)
        return attended.transpose(0, 1)

    def run(self, batch: "Batch", heads: Tensor) -> Tensor:
        """Write the keys and values of a batch and attend.

        Args:
            batch: Where its tokens lie.
            heads: float32 [tokens, heads + 2 * kv_heads, head_dim], as the projections give them.

        Returns:
            [tokens, heads, head_dim].
        """
        query = torch.empty(
            (batch.num_tokens, self.shape.num_heads, self.shape.head_dim), dtype=self.shape.dtype
        )
        attended = torch.full_like(query, float("nan"))
        products, scratch = heads.clone(), abi.Scratch()  # the kernel changes them
        scratch.buffers[abi.PRODUCTS] = pointer(products)
        scratch.buffers[abi.QUERY] = pointer(query)
        scratch.buffers[abi.ATTENDED] = pointer(attended)
        self._pool.rotate_and_store(self._model, batch.structure, scratch, self._attention)
        self._pool.attend(self._model, batch.structure, scratch, self._attention)
        self.query = query
        return attended

    def cached(self, table: list[int], length: int) -> tuple[Tensor, Tensor]:
        """Return keys and values of the first `length` positions, [length, kv_heads, head_dim]."""
        return self._unpack(self.key, table, length, is_key=True), self._unpack(
            self.value, table, length, is_key=False
        )

    def _unpack(self, cache: Tensor, table: list[int], length: int, *, is_key: bool) -> Tensor:
        shape, step = self.shape, STEP[self.shape.dtype]
        step = STEP[torch.bfloat16] if shape.has_scales else step  # of int8
        groups = shape.block_size // 16
        blocks = cache[table].view(len(table), shape.num_kv_heads, groups, -1)
        if shape.has_scales:
            scales, blocks = blocks[..., : 4 * 16], blocks[..., 4 * 16 :]
            scales = scales.contiguous().view(torch.float32)  # [blocks, kv_heads, groups, 16]
            scales = scales.permute(0, 2, 3, 1).reshape(-1, shape.num_kv_heads, 1)[:length]
        if is_key:  # [head_dim / step][16 tokens][step]
            panels = blocks.reshape(*blocks.shape[:3], shape.head_dim // step, 16, step)
            tokens = panels.permute(0, 2, 4, 1, 3, 5)
        else:  # [head_dim / 16][16 tokens / step][16 columns][step]
            panels = blocks.reshape(*blocks.shape[:3], shape.head_dim // 16, 16 // step, 16, step)
            tokens = panels.permute(0, 2, 4, 6, 1, 3, 5)
        numbers = tokens.reshape(-1, shape.num_kv_heads, shape.head_dim)[:length]
        return numbers.float() * scales if shape.has_scales else numbers


def _head_norm(weight: Tensor) -> Any:
    return ctypes.pointer(abi.NormArgs(pointer(weight), None, 1e-6, len(weight), False))


def position_of(block: Tensor, at: int, *, is_key: bool) -> Tensor:
    """Return a view of what a block of a cache holds of its position `at`, of all KV heads.

    Args:
        block: Keys or values, in size [block_size, kv_heads, head_dim].
        at: Counted from the beginning of the block.
        is_key: Which of the two; they are laid out differently.
    """
    size, num_kv_heads, head_dim = block.shape
    step, (group, token) = STEP[block.dtype], divmod(at, 16)
    groups = block.view(num_kv_heads, size // 16, -1)[:, group]
    if is_key:
        return groups.view(num_kv_heads, head_dim // step, 16, step)[:, :, token]
    panels = groups.view(num_kv_heads, head_dim // 16, 16 // step, 16, step)
    return panels[:, :, token // step, :, token % step]


class Batch:
    """Where the tokens of some sequences lie.

    Args:
        chunks: (begin, end, block table) of each sequence.
        block_size: Positions of a block.
    """

    def __init__(self, chunks: list[tuple[int, int, list[int]]], block_size: int) -> None:
        positions = [p for begin, end, _ in chunks for p in range(begin, end)]
        slots = [
            table[p // block_size] * block_size + p % block_size
            for begin, end, table in chunks
            for p in range(begin, end)
        ]
        width = max(len(table) for _, _, table in chunks)
        tables = np.zeros((len(chunks), width), dtype=np.int64)
        for row, (_, _, table) in zip(tables, chunks, strict=True):
            row[: len(table)] = table
        lengths = [end - begin for begin, end, _ in chunks]
        self.chunks = chunks
        self.slots = slots
        self.num_tokens = len(positions)
        self.starts = np.concatenate(([0], np.cumsum(lengths)))
        self._arrays = [
            np.array(positions),
            np.array(slots),
            self.starts,
            np.array([end for _, end, _ in chunks]),
            tables,
        ]
        data = [array.ctypes.data for array in self._arrays]
        self.structure = abi.Batch(
            num_tokens=self.num_tokens,
            num_seqs=len(chunks),
            num_outputs=0,
            table_stride=width,
            positions=data[0],
            slot_mapping=data[1],
            query_starts=data[2],
            seq_lens=data[3],
            block_tables=data[4],
        )


def plain_attention(query: Tensor, key: Tensor, value: Tensor, begin: int, shape: Shape) -> Tensor:
    """Attend in float64.

    Args:
        query: [tokens, heads, head_dim], of the positions from `begin` on.
        key, value: [positions, kv_heads, head_dim].
        begin: Position of the first query.
        shape: How the queries attend.

    Returns:
        float64 [tokens, heads, head_dim].
    """
    group = query.shape[1] // key.shape[1]
    wide_key = key.double().repeat_interleave(group, dim=1)
    wide_value = value.double().repeat_interleave(group, dim=1)
    scores = torch.einsum("thd,phd->htp", query.double(), wide_key) * shape.score_scale
    if shape.softcap:
        scores = shape.softcap * torch.tanh(scores / shape.softcap)
    own = torch.arange(begin, begin + len(query))[:, None]
    seen = torch.arange(len(key))[None, :]
    is_hidden = seen > own
    if shape.window:
        is_hidden |= seen <= own - shape.window
    weights = softmax_with(scores.masked_fill(is_hidden, float("-inf")), shape.sinks)
    return torch.einsum("htp,phd->thd", weights, wide_value)


def softmax_with(scores: Tensor, sinks: Tensor | None) -> Tensor:
    """Return the softmax of [heads, tokens, positions] beside one more score of each head."""
    if sinks is None:
        return scores.softmax(dim=2)
    column = sinks.to(scores.dtype)[:, None, None].expand(-1, scores.shape[1], 1)
    return torch.cat((scores, column), dim=2).softmax(dim=2)[:, :, :-1]
