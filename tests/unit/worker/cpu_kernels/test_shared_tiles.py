"""Threads that share the positions of a sequence in attention."""

import pytest
import torch
from torch import Tensor

from pagewire_worker.cpu_kernels.library import KernelPool
from support.kernels.fused_kernels import Batch, PagedAttention, Shape, pools

LENGTHS = (3900, 1, 513, 2100)
"""One that takes longer than the others together, and one of a single split."""

PAIRS = [
    pytest.param(one.values[0], many.values[0], id=many.id, marks=many.marks)
    for one, many in zip(pools(1), pools(4), strict=True)
]


def attended(pool: KernelPool, shape: Shape) -> list[Tensor]:
    """Return what one decode per sequence sees in a cache of random numbers, several times."""
    torch.manual_seed(0)
    counts = [-(-length // shape.block_size) for length in LENGTHS]
    blocks = iter(torch.randperm(sum(counts)).tolist())
    tables = [[next(blocks) for _ in range(count)] for count in counts]
    paged = PagedAttention(pool, shape, sum(counts))
    paged.key.copy_(torch.randn(paged.key.shape))
    paged.value.copy_(torch.randn(paged.value.shape))
    chunks = [(end - 1, end, table) for end, table in zip(LENGTHS, tables, strict=True)]
    batch = Batch(chunks, shape.block_size)
    if shape.latent_dim:
        query = torch.randn(len(LENGTHS), shape.num_heads, shape.head_dim).to(shape.dtype)
        keys = torch.randn(len(LENGTHS), shape.head_dim).to(shape.dtype)
        return [paged.attend_latents(batch, query.clone(), keys) for _ in range(5)]
    width = shape.num_heads + 2 * shape.num_kv_heads
    heads = torch.randn(len(LENGTHS), width, shape.head_dim)
    return [paged.run(batch, heads.clone()).clone() for _ in range(5)]


@pytest.mark.parametrize(("alone", "together"), PAIRS)
@pytest.mark.parametrize(
    "shape",
    [
        Shape(7, 1, 64, 16, 0, torch.bfloat16, has_sinks=True),
        Shape(4, 2, 48, 32, 1500, torch.float32),
        Shape(5, 1, 80, 16, 0, torch.bfloat16, latent_dim=48),
        # More heads than a tile has rows.
        Shape(72, 1, 80, 16, 0, torch.float32, latent_dim=48),
    ],
    ids=["one-head", "window", "latents", "many-heads"],
)
def test_four_threads_find_the_bits_of_one(
    alone: KernelPool, together: KernelPool, shape: Shape
) -> None:
    expected, *_ = attended(alone, shape)
    assert expected.isfinite().all()
    for found in attended(together, shape):
        assert torch.equal(found, expected)
