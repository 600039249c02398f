"""Rows, blocks, heads and tables beyond element 2**31, out of reach of 32 bits."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from unit.worker.triton_kernels.conftest import TOLERANCES
from unit.worker.triton_kernels.rotary_cases import Layout, assert_same, make_case

from pagewire_worker.checkpoint.coded_matrix import CodedMatrix
from pagewire_worker.kv.kv_cache import LayerCache
from pagewire_worker.triton_kernels.activate import activate
from pagewire_worker.triton_kernels.add_norm import add_norm
from pagewire_worker.triton_kernels.code_matmul import CodeTile, code_matmul
from pagewire_worker.triton_kernels.filter_thresholds import filter_thresholds
from pagewire_worker.triton_kernels.packed_codes import packed
from pagewire_worker.triton_kernels.paged_sequences import PagedLayer, PagedSequences
from pagewire_worker.triton_kernels.quantize_rows import quantize_rows
from pagewire_worker.triton_kernels.sample_tokens import greedy_tokens, sample_tokens
from pagewire_worker.triton_kernels.tile_matmul import Tile, tile_matmul
from support.oracles.kernels import rotary_kv_write_oracle
from support.oracles.paged_cases import CPU, PagedCase, assert_right, chunks, decode, draw
from support.poison import is_on
from support.poison.far import BEYOND, far_rows, far_tensor

pytestmark = pytest.mark.skipif(
    not is_on(), reason="the interpreter copies whole storages, gigabytes here"
)
ONES = torch.ones(3, 1)
TILE = Tile(rows=16, columns=16, depth=16, num_stages=2)
CODE_TILE = CodeTile(rows=16, columns=16, num_stages=2)
CODES = packed(
    CodedMatrix(codes=torch.arange(120, dtype=torch.int8).view(3, 40), table=None, scales=ONES), CPU
)


def noise(num_rows):
    return tuple(torch.randint(0, 2**32, (num_rows,)) for _ in range(4))


OPERATORS = {
    "add_norm": lambda x: add_norm(None, x, torch.ones(40, dtype=x.dtype), 1e-5),
    "rows of add_norm": lambda x: add_norm(
        None, x, torch.ones(40, dtype=x.dtype), 1e-5, torch.tensor([2, 0])
    ),
    "activate": activate,
    "quantize_rows": lambda x: torch.cat([part.float() for part in quantize_rows(x)], 1),
    "rows of tile_matmul": lambda x: tile_matmul(x, torch.eye(40, dtype=x.dtype), tile=TILE),
    "columns of tile_matmul": lambda x: tile_matmul(
        torch.eye(40, dtype=x.dtype), x, bias=torch.ones(3, dtype=x.dtype), tile=TILE
    ),
    "rows of code_matmul": lambda x: code_matmul(x, CODES, tile=CODE_TILE),
    "greedy_tokens": lambda x: greedy_tokens(x, split=16),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_rows_far_apart(name, dice):
    near = torch.randn(3, 40).half()
    assert torch.equal(OPERATORS[name](far_rows(near)), OPERATORS[name](near))


def test_words_far_apart(dice):
    x, far = torch.randn(2, 40), replace(CODES, words=far_rows(CODES.words))
    expected = code_matmul(x, CODES, tile=CODE_TILE)
    assert torch.equal(code_matmul(x, far, tile=CODE_TILE), expected)


def test_a_residual_far_away_is_added_to(dice):
    x, residual = torch.randn(2, 3, 40).half()
    far_x, far_residual, weight = far_rows(x), far_rows(residual), torch.ones(40).half()
    expected = add_norm(x, residual, weight, 1e-5)
    assert torch.equal(add_norm(far_x, far_residual, weight, 1e-5), expected)
    assert torch.equal(far_residual, residual)


def test_logits_far_apart(dice):
    near, rows, heat = torch.randn(3, 40), noise(3), torch.ones(3)
    filters = torch.full((3,), 0.01), torch.full((3,), 5), torch.full((3,), 0.9)
    far = far_rows(near)
    threshold = filter_thresholds(near, heat, *filters, block=32)
    assert torch.equal(filter_thresholds(far, heat, *filters, block=32), threshold)
    chosen = sample_tokens(far, heat, *rows, threshold, split=16)
    assert torch.equal(chosen, sample_tokens(near, heat, *rows, threshold, split=16))


# Elements from one block, token and head to the next, in a cache of 6 blocks of 4 tokens.
# Each fits into 32 bits; it is the product with an index that does not.
FAR_CACHES = {
    "blocks far apart": (BEYOND // 4, 3 * 32, 32),
    "heads outside blocks": (4 * 32, 32, BEYOND // 2),
    "tokens far apart": (3 * 32, BEYOND // 2, 32),
}


@pytest.mark.parametrize("layout", FAR_CACHES)
def test_keys_and_values_are_written_far_away(layout, dice):
    case = make_case(torch.float16, heads=(3, 3), head_dim=32)
    case = replace(case, slot_mapping=torch.tensor([23, 2, -1, 19]))
    shape, strides = tuple(case.cache[0].shape), (*FAR_CACHES[layout], 1)
    caches = [far_tensor(shape, strides, torch.float16) for _ in range(2)]
    near = case.with_own_memory()
    far = replace(case, layout=Layout(case.layout.size, lambda memory: caches))
    assert_same(far.run(), near.run(rotary_kv_write_oracle))
    places = case.places()
    for written, wanted in zip(far.cache, near.cache, strict=True):
        assert_same(written[places], wanted[places])


@pytest.mark.parametrize("attend", [decode, chunks])
@pytest.mark.parametrize("part", ["blocks", "heads", "tokens"])
def test_attention_over_keys_far_away(part, attend, dice, monkeypatch):
    case = PagedCase([(40, 1), (9, 1)], 3, 3, 16, block_size=4, dtype=torch.float16)
    key, value = case.layer.cache.key, case.layer.cache.value
    blocks, size, heads, dim = key.shape
    strides = {
        "blocks": (-(-BEYOND // (blocks - 1)), heads * dim, dim, 1),
        "heads": (size * dim, dim, BEYOND // 2, 1),
        "tokens": (heads * dim, BEYOND // 2, dim, 1),
    }[part]
    far = []
    for near in (key, value):
        there = far_tensor(tuple(near.shape), strides, near.dtype)
        there.copy_(near)
        far.append(there)
    layer = PagedLayer(LayerCache(*far))
    monkeypatch.setattr(
        "support.oracles.paged_cases.on_device", lambda case, device: (case.query, layer)
    )
    assert_right(case, attend(case), TOLERANCES[torch.float16])


@pytest.mark.parametrize("attend", [decode, chunks])
def test_tables_far_apart(attend, dice, monkeypatch):
    case = draw(dice, torch.float32, [(20, 1), (9, 1), (33, 1)])

    def of(metadata, device):
        near = [metadata.query_starts, metadata.seq_lens, metadata.block_tables]
        starts, lengths, tables = (torch.from_numpy(a.astype(np.int32)).to(CPU) for a in near)
        return PagedSequences(starts, lengths, far_rows(tables))

    monkeypatch.setattr(PagedSequences, "of", of)
    assert_right(case, attend(case), TOLERANCES[torch.float32])
