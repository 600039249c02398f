"""Windows, scales and soft caps: every implementation equals the formula; masks are told apart."""

import numpy as np
import pytest
import torch

from pagewire_worker.attention.registry import FACTORIES, make_attention
from pagewire_worker.backend.attention import AttentionKind, AttentionMetadata
from pagewire_worker.kv.kv_cache import CacheShape, KvCache
from pagewire_worker.transformers_backend.probe import MaskMarkers, check_mask
from pagewire_worker.transformers_backend.refusal import Refusal

BLOCK_SIZE, HEADS, KV_HEADS, HEAD_DIM = 4, 4, 2, 8
KINDS = [
    AttentionKind(),
    AttentionKind(window=5),
    AttentionKind(scale=1.0),
    AttentionKind(window=5, scale=0.2),
    AttentionKind(softcap=1.5),
    AttentionKind(window=5, scale=0.2, softcap=1.5),
    AttentionKind(window=5, has_sinks=True),
]
SINKS = torch.tensor([-3.0, 0.0, 2.0, 30.0])


def by_formula(query, key, value, kind):
    """Return [n, heads, d] for the last n of `length` positions, in float64."""
    num_new, length = query.shape[0], key.shape[0]
    query, key, value = query.double(), key.double(), value.double()
    output = torch.zeros_like(query)
    for row in range(num_new):
        own = length - num_new + row
        first = 0 if kind.window is None else max(0, own - kind.window + 1)
        for head in range(HEADS):
            group = head // (HEADS // KV_HEADS)
            scores = key[first : own + 1, group] @ query[row, head]
            scores = scores * (HEAD_DIM**-0.5 if kind.scale is None else kind.scale)
            if kind.softcap is not None:
                scores = kind.softcap * (scores / kind.softcap).tanh()
            if kind.has_sinks:
                scores = torch.cat((scores, SINKS[head : head + 1].double()))
            weights = scores.softmax(0)[: own + 1 - first]
            output[row, head] = weights @ value[first : own + 1, group]
    return output


@pytest.mark.parametrize("name", sorted(FACTORIES))
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_equals_the_formula(name, kind):
    generator = torch.Generator().manual_seed(3)
    lengths, new = [11, 9, 16, 3], [1, 4, 1, 3]
    device = torch.device("cpu")
    cache = KvCache(
        shape=CacheShape(1, KV_HEADS, HEAD_DIM),
        num_blocks=16,
        block_size=BLOCK_SIZE,
        device=device,
        dtype=torch.float32,
    )
    tables = np.arange(16, dtype=np.int64)[::-1].reshape(4, 4).copy()
    keys = [torch.randn(n, KV_HEADS, HEAD_DIM, generator=generator) * 2 for n in lengths]
    values = [torch.randn(n, KV_HEADS, HEAD_DIM, generator=generator) for n in lengths]
    for table, key, value in zip(tables, keys, values, strict=True):
        at = np.arange(len(key))
        slots = torch.from_numpy(table[at // BLOCK_SIZE] * BLOCK_SIZE + at % BLOCK_SIZE)
        cache.layers[0].write(slots, key, value)
    query = torch.randn(sum(new), HEADS, HEAD_DIM, generator=generator) * 2
    metadata = AttentionMetadata(
        np.cumsum([0, *new]).astype(np.int64), np.array(lengths, dtype=np.int64), tables
    )
    attention = make_attention(name, device, torch.float32, BLOCK_SIZE, kind)
    sinks = SINKS if kind.has_sinks else None
    found = attention.prepare(metadata)(query, cache.layers[0], sinks)
    expected = torch.cat(
        [
            by_formula(part, key, value, kind)
            for part, key, value in zip(query.split(new), keys, values, strict=True)
        ]
    )
    torch.testing.assert_close(found, expected.float(), atol=1e-5, rtol=1e-5)


def causal(batch, head, query, key):
    return key <= query


def within(window):
    return lambda batch, head, query, key: (key <= query) & (key > query - window)


@pytest.mark.parametrize("window", [None, 1, 2, 5, 100, 4096])
def test_causal_masks_and_windows_are_accepted(window):
    check_mask(causal if window is None else within(window), window)


@pytest.mark.parametrize(
    ("visible", "window"),
    [
        (within(5), None),
        (within(4096), None),
        (causal, 5),
        (causal, 4096),
        (within(4095), 4096),
        (within(4097), 4096),
        (lambda batch, head, query, key: key < query, None),
        (lambda batch, head, query, key: key <= query + 1, None),
        (lambda batch, head, query, key: key >= 0, None),
        (lambda batch, head, query, key: (key <= query) & (key // 8192 == query // 8192), None),
        (lambda batch, head, query, key: (key <= query) & (key // 16 == query // 16), 16),
        (lambda batch, head, query, key: torch.ones(7)[query] > 0, None),
    ],
)
def test_other_masks_are_refused(visible, window):
    with pytest.raises(Refusal, match="mask"):
        check_mask(visible, window)


def test_a_mask_that_was_changed_is_refused():
    markers = MaskMarkers(torch.device("cpu"))
    mask = markers.of(7)
    assert markers.window_of(mask) == 7
    assert markers.window_of(mask[:, :, :, :40]) == 7
    assert markers.window_of(markers.of(None)) is None
    for changed in (None, mask.float(), mask + torch.zeros(1, 4, 1, 1), torch.zeros(1, 1, 3, 3)):
        with pytest.raises(Refusal):
            markers.window_of(changed)
