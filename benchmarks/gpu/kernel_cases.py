"""Calls of single kernels with random data, and what each has to read, write and compute."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from decodes import fill_cache
from shapes import Shape
from timing import Job
from torch import Tensor
from torch.nn import functional

from pagewire_worker.attention.triton import TritonAttention
from pagewire_worker.backend.attention import AttentionKind, AttentionMetadata, Int64Array
from pagewire_worker.kv.kv_cache import CacheShape, KvCache, LayerCache
from pagewire_worker.triton_kernels.activate import activate
from pagewire_worker.triton_kernels.add_norm import add_norm
from pagewire_worker.triton_kernels.filter_thresholds import filter_thresholds
from pagewire_worker.triton_kernels.rotary_kv_write import HeadNorms, rotary_kv_write
from pagewire_worker.triton_kernels.sample_tokens import greedy_tokens, sample_tokens

BLOCK_SIZE = 16
COLD_BYTES = 256 * 1024**2
"""More than the caches of a GPU hold."""

MAX_COPIES = 64
EPSILON = 1e-6


@dataclass(frozen=True, slots=True)
class Case:
    """One call.

    Attributes:
        name: Of the kernel and its sizes.
        jobs: Call it, each on weights or blocks of its own.
        num_bytes: That it has to read and write.
        num_operations: Additions and multiplications of its products; 0 where they do not count.
    """

    name: str
    jobs: Sequence[Job]
    num_bytes: int
    num_operations: int = 0


def attention_cases(
    shape: Shape,
    batches: Sequence[int],
    contexts: Sequence[int],
    prompts: Sequence[int],
    device: torch.device,
    dtype: torch.dtype,
) -> list[Case]:
    """Return decodes of every batch and context, and whole prompts, over one layer's cache."""
    longest = max(max(batches) * max(contexts), max(prompts))
    cache = KvCache(
        shape=CacheShape(1, shape.kv_heads, shape.head_dim),
        num_blocks=longest // BLOCK_SIZE + max(batches),
        block_size=BLOCK_SIZE,
        device=device,
        dtype=dtype,
    )
    fill_cache(cache)
    decodes = [
        _attention(f"decode, batch {batch}, context {context}", shape, cache, batch, context, 1)
        for context in contexts
        for batch in batches
    ]
    whole = [_attention(f"prompt of {n}", shape, cache, 1, n, n) for n in prompts]
    return decodes + whole


def _attention(
    name: str, shape: Shape, cache: KvCache, batch: int, context: int, num_new: int
) -> Case:
    layer = cache.layers[0]
    each = -(-context // BLOCK_SIZE)
    # Scattered, as the blocks of a server that has run for a while.
    blocks = np.random.default_rng(0).permutation(cache.num_blocks)
    num_bytes = 2 * layer.key[: batch * each].nbytes
    copies = min(_num_copies(num_bytes, layer.key.device), len(blocks) // (batch * each))
    tables = blocks[: copies * batch * each].reshape(copies, batch, each)
    query = torch.randn(batch * num_new, shape.heads, shape.head_dim, device=layer.key.device)
    query = query.to(layer.key.dtype)
    # A token sees what is before it and itself, in two products.
    num_seen = batch * num_new * (2 * context - num_new + 1) // 2
    return Case(
        name,
        [_attend(query, layer, table, context, num_new) for table in tables],
        2 * batch * context * shape.kv_heads * shape.head_dim * query.itemsize + 2 * query.nbytes,
        4 * num_seen * shape.heads * shape.head_dim,
    )


def _attend(
    query: Tensor, layer: LayerCache, tables: Int64Array, context: int, num_new: int
) -> Job:
    batch = len(tables)
    metadata = AttentionMetadata(np.arange(batch + 1) * num_new, np.full(batch, context), tables)
    step = TritonAttention(query.device, AttentionKind()).prepare(metadata)
    return lambda: step(query, layer)


def _num_copies(num_bytes: int, device: torch.device) -> int:
    """Return how many of something there have to be so that caches do not hold them."""
    return 1 if device.type == "cpu" else min(-(-COLD_BYTES // num_bytes), MAX_COPIES)


def product_cases(
    shape: Shape, rows: Sequence[int], device: torch.device, dtype: torch.dtype
) -> list[Case]:
    """Return torch's product with each matrix of a layer, for steps of so many tokens."""
    heads, kv_heads = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    sizes = {
        "qkv": (heads + 2 * kv_heads, shape.hidden),
        "output": (shape.hidden, heads),
        "gate_up": (2 * shape.intermediate, shape.hidden),
        "down": (shape.hidden, shape.intermediate),
    }

    def drawn(size: tuple[int, int]) -> list[Tensor]:
        copies = _num_copies(size[0] * size[1] * dtype.itemsize, device)
        return [torch.randn(size, device=device).to(dtype).mul_(0.02) for _ in range(copies)]

    weights = {name: drawn(size) for name, size in sizes.items()}
    return [_product(f"{n}, {m} rows", weights[n], m) for m in rows for n in weights]


def _product(name: str, weights: list[Tensor], num_rows: int) -> Case:
    first = weights[0]
    num_outputs, num_inputs = first.shape
    x = torch.randn(num_rows, num_inputs, device=first.device).to(first.dtype)
    num_elements = first.numel() + num_rows * (num_inputs + num_outputs)
    return Case(
        name,
        [partial(functional.linear, x, weight) for weight in weights],
        num_elements * first.itemsize,
        2 * num_rows * first.numel(),
    )


def glue_cases(
    shape: Shape, rows: Sequence[int], device: torch.device, dtype: torch.dtype
) -> list[Case]:
    """Return what lies between the products of a layer, for steps of so many tokens."""
    return [case for count in rows for case in _glue(shape, count, device, dtype)]


def _glue(shape: Shape, num_rows: int, device: torch.device, dtype: torch.dtype) -> Iterator[Case]:
    def randn(*size: int) -> Tensor:
        return torch.randn(size, device=device).to(dtype)

    residual, norm = randn(num_rows, shape.hidden), randn(shape.hidden)
    # The same sum again and again would overflow.
    nothing = torch.zeros_like(residual)
    yield Case(
        f"add_norm, {num_rows} rows",
        [lambda: add_norm(nothing, residual, norm, EPSILON)],
        4 * residual.nbytes,
    )
    yield _rotary(shape, num_rows, device, dtype)
    gates = randn(num_rows, 2 * shape.intermediate)
    yield Case(
        f"activate, {num_rows} rows", [lambda: activate(gates)], gates.nbytes + gates.nbytes // 2
    )


def _rotary(shape: Shape, num_rows: int, device: torch.device, dtype: torch.dtype) -> Case:
    num_blocks = -(-num_rows // BLOCK_SIZE)
    cache = KvCache(
        shape=CacheShape(1, shape.kv_heads, shape.head_dim),
        num_blocks=num_blocks,
        block_size=BLOCK_SIZE,
        device=device,
        dtype=dtype,
    ).layers[0]
    width = (shape.heads + 2 * shape.kv_heads) * shape.head_dim
    qkv = torch.randn(num_rows, width, device=device).to(dtype)
    table = torch.randn(shape.context, shape.head_dim, device=device).to(dtype)
    places = torch.randperm(num_blocks * BLOCK_SIZE, device=device)[:num_rows]
    positions = places % shape.context
    weight = torch.ones(shape.head_dim, device=device, dtype=dtype)
    norms = HeadNorms(weight, weight, EPSILON)
    return Case(
        f"rotary_kv_write, {num_rows} rows",
        [
            lambda: rotary_kv_write(
                qkv, positions, places, table, table, cache.key, cache.value, norms
            )
        ],
        2 * qkv.nbytes,
    )


def sampling_cases(shape: Shape, rows: Sequence[int], device: torch.device) -> list[Case]:
    """Return the choice of a token from so many rows of logits."""
    return [case for count in rows for case in _sampling(shape, count, device)]


def _sampling(shape: Shape, num_rows: int, device: torch.device) -> Iterator[Case]:
    logits = torch.randn(num_rows, shape.vocab, device=device)

    def column(value: float, dtype: torch.dtype) -> Tensor:
        return torch.full((num_rows,), value, dtype=dtype, device=device)

    heat, seeds = column(0.6, torch.float32), torch.arange(num_rows, device=device)
    yield Case(f"greedy, {num_rows} rows", [lambda: greedy_tokens(logits)], logits.nbytes)
    yield Case(
        f"temperature 0.6, {num_rows} rows",
        [lambda: sample_tokens(logits, heat, seeds, seeds, seeds, seeds)],
        logits.nbytes,
    )
    # Made beforehand: what a job allocates on the host cannot be captured.
    filters = (column(0.0, torch.float32), column(50, torch.int64), column(0.9, torch.float32))
    yield Case(
        f"thresholds of top-k 50 and top-p 0.9, {num_rows} rows",
        [lambda: filter_thresholds(logits, heat, *filters)],
        logits.nbytes,
    )
