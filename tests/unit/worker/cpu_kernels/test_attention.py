"""Attention over paged keys and values against float64, and bitwise against itself. What no token
may read is NaN."""

import random

import pytest
import torch
from torch import Tensor

from pagewire_worker.cpu_kernels.library import KernelPool
from pagewire_worker.kv.scaled_rows import from_rows, to_rows
from support.kernels.fused_kernels import Batch, PagedAttention, Shape, plain_attention, pools

DTYPES = (torch.float32, torch.bfloat16)
TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 2e-2}


def draw_shape(generator: random.Random, dtype: torch.dtype) -> Shape:
    num_kv_heads = generator.choice([1, 2, 3])
    return Shape(
        num_heads=num_kv_heads * generator.choice([1, 2, 5, 7, 8, 12]),
        num_kv_heads=num_kv_heads,
        head_dim=generator.choice([16, 32, 64, 80, 128]),
        block_size=generator.choice([16, 32, 48]),
        window=generator.choice([0, 0, 1, 5, 16, 40, 600]),
        dtype=dtype,
        scale=generator.choice([None, None, 0.3]),
        softcap=generator.choice([0.0, 0.0, 1.5, 50.0]),
        has_sinks=generator.choice([False, True]),
        has_scales=generator.choice([False, True]),
    )


def draw_heads(shape: Shape, num_tokens: int) -> Tensor:
    size = (num_tokens, shape.num_heads + 2 * shape.num_kv_heads, shape.head_dim)
    return torch.randn(size)


def make_tables(
    generator: random.Random, lengths: list[int], shape: Shape
) -> tuple[list[list[int]], int]:
    """Return a block table per sequence, of blocks in any order, and how many blocks there are."""
    counts = [-(-length // shape.block_size) for length in lengths]
    blocks = list(range(sum(counts) + 3))
    generator.shuffle(blocks)
    tables = []
    for count in counts:
        tables.append(blocks[:count])
        del blocks[:count]
    return tables, sum(counts) + 3


@pytest.mark.parametrize("pool", pools(1, 2))
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("seed", range(12))
def test_chunks_and_decodes_in_one_batch(pool: KernelPool, dtype: torch.dtype, seed: int) -> None:
    generator = random.Random(seed)
    torch.manual_seed(seed)
    shape = draw_shape(generator, dtype)
    lengths = [generator.choice([1, 2, 15, 16, 17, 40, 100, 530, 1030]) for _ in range(4)]
    tables, num_blocks = make_tables(generator, lengths, shape)
    paged = PagedAttention(pool, shape, num_blocks)
    begins = [generator.choice([0, length - 1, length // 2]) for length in lengths]
    if any(begins):
        earlier = [(0, b, t) for b, t in zip(begins, tables, strict=True) if b]
        batch = Batch(earlier, shape.block_size)
        paged.run(batch, draw_heads(shape, batch.num_tokens))
    batch = Batch(list(zip(begins, lengths, tables, strict=True)), shape.block_size)
    attended = paged.run(batch, draw_heads(shape, batch.num_tokens))
    for number, (begin, end, table) in enumerate(batch.chunks):
        rows = slice(int(batch.starts[number]), int(batch.starts[number + 1]))
        key, value = paged.cached(table, end)
        exact = plain_attention(paged.query[rows], key, value, begin, shape)
        assert ((attended[rows].double() - exact).abs() <= TOLERANCE[dtype]).all()


@pytest.mark.parametrize("pool", pools(2))
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    ("window", "softcap", "has_sinks", "has_scales"),
    [
        (0, 0.0, False, False),
        (20, 0.0, False, False),
        (700, 0.0, True, False),
        (20, 2.0, False, False),
        (0, 0.0, False, True),
        (700, 2.0, True, True),
    ],
)
def test_a_token_does_not_depend_on_its_chunk(
    pool: KernelPool,
    dtype: torch.dtype,
    window: int,
    softcap: float,
    has_sinks: bool,
    has_scales: bool,
) -> None:
    """Whole, in chunks of several sizes, or one by one: the same bits. A sink is counted once, and
    not in every split."""
    torch.manual_seed(0)
    shape = Shape(
        *(14, 2, 32, 16, window, dtype),
        softcap=softcap,
        has_sinks=has_sinks,
        has_scales=has_scales,
    )
    length, table = 1100, list(range(69))[::-1]
    heads = draw_heads(shape, length)
    results = []
    for size in (length, 512, 100, 7, 1):
        paged = PagedAttention(pool, shape, 70)
        parts = []
        for begin in range(0, length, size):
            end = min(begin + size, length)
            batch = Batch([(begin, end, table)], 16)
            parts.append(paged.run(batch, heads[begin:end].clone()))
        results.append(torch.cat(parts))
    assert results[0].isfinite().all()
    for result in results[1:]:
        assert torch.equal(result, results[0])


@pytest.mark.parametrize("pool", pools(2))
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("num_heads", [3, 72])
def test_latents_are_keys_and_values(pool: KernelPool, dtype: torch.dtype, num_heads: int) -> None:
    """Many heads share one, also more than a tile holds; each token has the same bits alone."""
    torch.manual_seed(num_heads)
    shape = Shape(num_heads, 1, 80, 16, 0, dtype, scale=0.2, latent_dim=48)
    chunks = [(0, 535, list(range(34))[::-1]), (0, 1, [35]), (0, 40, [40, 36, 38])]
    batch = Batch(chunks, 16)
    keys = torch.randn(batch.num_tokens, 80).to(dtype)
    query = torch.randn(batch.num_tokens, num_heads, 80).to(dtype)
    paged = PagedAttention(pool, shape, 41)
    attended = paged.attend_latents(batch, query, keys)
    for (begin, end, table), first in zip(chunks, batch.starts.tolist(), strict=False):
        rows = slice(first, first + end)
        key = keys[rows].unsqueeze(1)
        exact = plain_attention(query[rows], key, key[..., :48], begin, shape)
        assert ((attended[rows].double() - exact).abs() <= TOLERANCE[dtype]).all()
        alone = Batch([(end - 1, end, table)], 16)
        last = slice(rows.stop - 1, rows.stop)
        again = paged.attend_latents(alone, query[last].clone(), keys[last])
        assert torch.equal(again, attended[last])


@pytest.mark.parametrize("pool", pools(2))
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("has_scales", [False, True])
def test_what_left_the_window_is_not_read(
    pool: KernelPool, dtype: torch.dtype, has_scales: bool
) -> None:
    torch.manual_seed(0)
    shape = Shape(4, 2, 16, 16, 24, dtype, has_scales=has_scales)
    paged = PagedAttention(pool, shape, 8)
    paged.run(Batch([(0, 70, [4, 3, 2, 1, 0])], 16), draw_heads(shape, 70))
    # Blocks of the positions before 70 - 24 + 1 belong to others now.
    for block in (4, 3):
        for part in (paged.key, paged.value):
            part[block].view(torch.uint8).fill_(255)
    attended = paged.run(Batch([(70, 75, [4, 3, 2, 1, 0])], 16), draw_heads(shape, 5))
    assert attended.isfinite().all()


@pytest.mark.parametrize("pool", pools(2))
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("has_norms", [False, True])
def test_heads_are_rotated_and_stored(
    pool: KernelPool, dtype: torch.dtype, has_norms: bool
) -> None:
    torch.manual_seed(0)
    shape = Shape(4, 2, 48, 32, 0, dtype)
    norms = torch.randn(2, 48) if has_norms else None
    paged = PagedAttention(pool, shape, 4, norms)
    heads = draw_heads(shape, 40)
    paged.run(Batch([(0, 40, [2, 1])], 32), heads)
    query, key, value = heads.double().split((4, 2, 2), dim=1)
    if norms is not None:
        scales = [(x.square().mean(2, keepdim=True) + 1e-6).sqrt() for x in (query, key)]
        query, key = (
            x / s * n for x, s, n in zip((query, key), scales, norms.double(), strict=True)
        )
    cosines, sines = (x[:40, None].double() for x in (paged.cosines, paged.sines))

    def rotated(x: Tensor) -> Tensor:
        first, second = x.chunk(2, dim=2)
        return torch.cat(
            (first * cosines - second * sines, second * cosines + first * sines), dim=2
        )

    found_key, found_value = paged.cached([2, 1], 40)
    for found, exact in (
        (paged.query, rotated(query)),
        (found_key, rotated(key)),
        (found_value, value),
    ):
        rounding = 2**-8 if dtype == torch.bfloat16 else 1e-6
        assert ((found.double() - exact).abs() <= rounding * exact.abs() + 1e-5).all()


@pytest.mark.parametrize("pool", pools(2))
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_int8_and_scales_are_those_of_the_torch_cache(pool: KernelPool, dtype: torch.dtype) -> None:
    """Of very different and of no size. The kernels round what torch's cache gets as float32."""
    torch.manual_seed(0)
    shape = Shape(4, 2, 48, 32, 0, dtype, has_scales=True)
    paged = PagedAttention(pool, shape, 4)
    paged.cosines.fill_(1.0)
    paged.sines.zero_()
    heads = draw_heads(shape, 40) * 10.0 ** torch.randint(-30, 30, (40, 8, 1))
    heads[3] = 0.0
    heads[4] = 1e-40
    paged.run(Batch([(0, 40, [2, 1])], 32), heads)
    _, key, value = heads.split((4, 2, 2), dim=1)
    for found, given in zip(paged.cached([2, 1], 40), (key, value), strict=True):
        assert torch.equal(found, from_rows(to_rows(given)))
        error = (found - given).abs().amax(dim=2)
        assert (error <= given.abs().amax(dim=2) / 253 + 1e-30).all()


@pytest.mark.parametrize("pool", pools(2))
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), 3.4e38])
@pytest.mark.parametrize("has_scales", [False, True])
def test_what_is_not_finite_is_flagged_and_reaches_no_earlier_token(
    pool: KernelPool, dtype: torch.dtype, value: float, has_scales: bool
) -> None:
    """A weight of 0 times NaN would be NaN: the cache holds finite numbers only."""
    torch.manual_seed(0)
    shape = Shape(4, 2, 32, 16, 0, dtype, has_scales=has_scales)
    heads = draw_heads(shape, 8)
    clean = PagedAttention(pool, shape, 2)
    expected = clean.run(Batch([(0, 8, [1])], 16), heads.clone())
    for head in (4, 7):  # a key, a value
        broken, batch = heads.clone(), Batch([(0, 8, [1])], 16)
        broken[5, head, 3] = value
        faults = torch.zeros(8, dtype=torch.int64)
        batch.structure.faults = faults.data_ptr()
        paged = PagedAttention(pool, shape, 2)
        attended = paged.run(batch, broken)
        assert faults.tolist() == [0, 0, 0, 0, 0, 1, 0, 0]
        assert torch.equal(attended[:5], expected[:5])
        key, values = paged.cached([1], 8)
        assert key.isfinite().all()
        assert values.isfinite().all()
