"""Kernels of latent attention in the interpreter: against plain formulas, and bitwise against
themselves. What nobody has written is NaN."""

import numpy as np
import pytest
import torch
from unit.worker.triton_kernels.device_casts import round_as_devices_do

from pagewire_worker.attention.reference import ReferenceAttention
from pagewire_worker.attention.triton import EXACT_CHUNK_ROWS, TritonAttention
from pagewire_worker.backend.attention import AttentionKind, AttentionMetadata
from pagewire_worker.checkpoint.dtypes import FP8
from pagewire_worker.kv.kv_cache import CacheShape, KvCache, LayerCache
from pagewire_worker.layers.norm import RmsNorm
from pagewire_worker.layers.rotary import Rotation
from pagewire_worker.triton_kernels.latent.head_matmul import head_matmul
from pagewire_worker.triton_kernels.latent.latent_write import latent_write
from pagewire_worker.triton_kernels.paged_sequences import SplitPlan

CPU = torch.device("cpu")
RANK, TURNED, PLAIN = 40, 8, 24
DTYPES = [torch.float32, torch.bfloat16]
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2e-2}


@pytest.fixture(autouse=True)
def rounded(monkeypatch):
    round_as_devices_do(monkeypatch)


def paged(dtype, num_blocks=12):
    shape = CacheShape(num_layers=2, num_kv_heads=1, head_dim=RANK + TURNED, latent_dim=RANK)
    made = KvCache(
        shape=shape,
        num_blocks=num_blocks,
        block_size=8,
        device=CPU,
        dtype=dtype,
        has_whole_blocks=True,
    )
    made.blocks.copy_(torch.full(made.blocks.shape, float("nan")))
    return made.layers[1]


@pytest.mark.parametrize(
    ("dtype", "num_heads", "kept"),
    [*((dtype, heads, dtype) for dtype in DTYPES for heads in (2, 20)), (DTYPES[1], 2, FP8)],
)
def test_attention_over_latents(dtype, num_heads, kept):
    """Heads fill a tile together, or take several; each token has the same bits as a decode."""
    torch.manual_seed(num_heads)
    cache, kind = paged(kept), AttentionKind(scale=0.2)
    lengths, new = np.array([21, 1, 18]), np.array([4, 1, 1])
    tables = np.array([[3, 7, 1], [4, 0, 0], [2, 8, 5]])
    for table, length in zip(tables, lengths.tolist(), strict=True):
        positions = np.arange(length)
        slots = torch.from_numpy(table[positions // 8] * 8 + positions % 8)
        written = torch.randn(length, 1, RANK + TURNED).to(kept)
        cache.key[slots // 8, slots % 8] = written
    query = torch.randn(int(new.sum()), num_heads, RANK + TURNED).to(dtype)
    starts = np.concatenate(([0], np.cumsum(new)))
    metadata = AttentionMetadata(starts, lengths, tables)
    exact = TritonAttention(CPU, kind, SplitPlan(16, 16), chunk_rows=EXACT_CHUNK_ROWS)
    found = exact.prepare(metadata)(query, cache)
    wide = LayerCache.of([cache.key.to(dtype)], RANK)
    expected = ReferenceAttention(kind).prepare(metadata)(query, wide)
    assert found.shape == (len(query), num_heads, RANK)
    torch.testing.assert_close(found, expected, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])
    for row in (0, 3):
        seen = lengths[0] - new[0] + 1 + row
        alone = AttentionMetadata(np.array([0, 1]), np.array([seen]), tables[:1])
        again = exact.prepare(alone)(query[row : row + 1], cache)
        assert torch.equal(again[0], found[row])


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_product_of_each_head(dtype):
    torch.manual_seed(0)
    x = torch.randn(70, 3, PLAIN + TURNED).to(dtype)[..., :PLAIN]
    weights = torch.randn(3, RANK, PLAIN).to(dtype)
    product = torch.full((70, 3, RANK + TURNED), 7.0, dtype=dtype)
    head_matmul(x, weights, product[..., :RANK])
    exact = torch.einsum("thi,hoi->tho", x.double(), weights.double())
    error = (product[..., :RANK].double() - exact).abs()
    assert (error <= TOLERANCE[dtype] * (1 + exact.abs())).all()
    assert (product[..., RANK:] == 7.0).all()
    alone = torch.empty((1, 3, RANK), dtype=dtype)
    head_matmul(x[66:67], weights, alone)
    assert torch.equal(alone, product[66:67, :, :RANK])


@pytest.mark.parametrize(("dtype", "kept"), [*zip(DTYPES, DTYPES, strict=True), (DTYPES[1], FP8)])
def test_latents_are_normed_and_the_rest_is_rotated(dtype, kept):
    torch.manual_seed(0)
    num_heads, cache, weight = 18, paged(kept), torch.randn(RANK).to(dtype)
    products = torch.randn(4, 5 + RANK + TURNED).to(dtype)
    keys = products[:, 5:]
    keys[2, RANK + 3] = float("inf")
    queries = torch.randn(4, num_heads * (PLAIN + TURNED)).to(dtype)
    positions = torch.tensor([5, 0, 3, 9])
    slots, faults = torch.tensor([17, 90, 40, -1]), torch.zeros(4, dtype=torch.int64)
    angles = torch.rand(10, TURNED // 2).repeat(1, 2) * 6
    tables = angles.cos().to(dtype), angles.sin().to(dtype)
    inputs = keys, queries, positions, slots, *tables, cache.key, weight, 1e-6, faults, num_heads
    query = latent_write(*inputs, torch.full((2,), 0.5) if kept is FP8 else None)
    rotation = Rotation(*(one[positions].float().unsqueeze(1) for one in tables))
    heads = queries.view(4, num_heads, -1)[..., PLAIN:]
    expected = rotation.rotate(heads.float())
    tolerance = {"atol": TOLERANCE[dtype], "rtol": TOLERANCE[dtype]}
    torch.testing.assert_close(query[..., RANK:].float(), expected, **tolerance)
    assert faults.tolist() == [0, 0, 1, 0]
    written = cache.key.to(dtype).flatten(0, 1)[:, 0]
    if kept is FP8:
        written, tolerance = written * 0.5, {"atol": 2e-2, "rtol": 2**-3}
    assert written.isfinite().all(dim=1).nonzero().flatten().tolist() == [17, 40, 90]
    normed = RmsNorm(weight, 1e-6)(keys[:, :RANK])
    turned = rotation.rotate(keys[:, None, RANK:].float())[:, 0]
    turned = turned.where(turned.isfinite(), 0.0)
    for row, slot in enumerate(slots.tolist()[:3]):
        torch.testing.assert_close(written[slot, :RANK], normed[row], **tolerance)
        torch.testing.assert_close(written[slot, RANK:].float(), turned[row], **tolerance)
