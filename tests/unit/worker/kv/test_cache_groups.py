"""Layers in cache groups: how they are divided, where they lie, and what plans have to say."""

import numpy as np
import pytest
import torch

from pagewire_shared.sampling.params import SamplingParams
from pagewire_shared.steps.plan import GroupTable
from pagewire_worker.families import plan as plans
from pagewire_worker.kv.cache_groups import layer_groups
from pagewire_worker.kv.kv_cache import CacheShape, KvCache, LayerGroup
from support.cells.worker_driver import PROMPT, Driver, Running, load, request
from support.kernels.fused_kernels import needs_kernels
from support.oracles.family_checkpoints import make_family_checkpoint

CPU = torch.device("cpu")
GEMMA3_1B = [None if layer % 6 == 5 else 512 for layer in range(26)]
GEMMA3_27B = [None if layer % 6 == 5 else 1024 for layer in range(62)]
GEMMA2 = [4096, None] * 13


@pytest.mark.parametrize(
    ("windows", "max_positions", "sizes"),
    [
        ([None] * 8, 4096, []),
        ([64] * 8, 4096, []),
        ([64, 128] * 4, 4096, []),  # no layer reads all positions
        (GEMMA2, 8192, [(None, 13), (4096, 13)]),
        (GEMMA2, 4096, []),  # a window as long as the context hides nothing
        (GEMMA3_1B, 32768, [(None, 4), *[(512, 4)] * 4, *[(512, 3)] * 2]),
        (GEMMA3_27B, 131072, [(None, 10), *[(1024, 9)] * 4, *[(1024, 8)] * 2]),
        ([None] * 21 + [4096] * 7, 32768, [*[(None, 7)] * 3, (4096, 7)]),
        ([None] * 28 + [4096] * 4, 32768, []),  # saves less than an eighth
        ([None] * 31 + [4096], 32768, []),  # no group size is worth it
        ([None, *range(16, 160, 16)], 4096, []),  # more windows than groups
        ([None, 32, 8, 8], 4096, [(None, 1), (8, 1), (8, 1), (32, 1)]),
    ],
)
def test_layers_are_divided_by_their_windows(windows, max_positions, sizes):
    groups = layer_groups(windows, max_positions)
    assert [(group.window, len(group.layers)) for group in groups] == sizes
    if groups:
        assert sorted(layer for group in groups for layer in group.layers) == [*range(len(windows))]
        assert all(windows[layer] == group.window for group in groups for layer in group.layers)


GROUPS = (LayerGroup((2, 5)), LayerGroup((0, 3), 8), LayerGroup((1, 4), 8))


def test_layers_of_all_groups_share_the_memory_of_a_pool():
    shape = CacheShape(6, 1, 16, groups=GROUPS)
    cache = KvCache(shape=shape, num_blocks=4, block_size=16, device=CPU, dtype=torch.float32)
    assert [layer.group for layer in cache.layers] == [1, 2, 0, 1, 2, 0]
    places = [
        [one.key.data_ptr() for one in cache.stored].index(layer.key.data_ptr())
        for layer in cache.layers
    ]
    assert places == [0, 0, 0, 1, 1, 1]
    # A stored layer is whole in every group with the last of its layers.
    assert [cache.num_whole(count) for count in range(7)] == [0, 0, 0, 1, 1, 1, 2]
    assert cache.bytes_per_block == 2 * 2 * 16 * 16 * 4
    assert [(group.window, group.num_layers) for group in cache.layout()] == [
        (None, 2),
        (8, 2),
        (8, 2),
    ]
    # 10 blocks of all positions, and 3 of each window: one, and two that it has a part of.
    assert shape.blocks_of(10, 16) == 10 + 2 * 3
    assert (shape.longest(16, 16), shape.longest(15, 16)) == (160, 144)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_family_checkpoint(tmp_path_factory.mktemp("groups"), "gemma3")


@pytest.mark.parametrize("backend", [pytest.param("fused", marks=needs_kernels), "torch"])
def test_groups_give_the_bits_of_one_group(folder, backend, monkeypatch):
    def answers():
        driver = Driver.of(load(folder, cpu_backend=backend))
        sampling = SamplingParams(temperature=0.0, logprobs=2, max_tokens=None)
        lengths = (1, 40, 17, 33)
        running = [Running(at, PROMPT[:n], sampling, 30) for at, n in enumerate(lengths)]
        results = driver.finish(running, budget=24)
        said = [(list(one.token_ids), np.asarray(one.logprobs).tobytes()) for one in results]
        return driver.model_runner.backend.kv_cache.num_groups, said

    num_groups, grouped = answers()
    monkeypatch.setattr(plans, "layer_groups", lambda *_: ())
    one, whole = answers()
    assert (num_groups, one) == (3, 1)
    assert grouped == whole


@pytest.mark.parametrize(
    ("further", "message"),
    [
        ((), "1 block_tables, and 3 cache groups"),
        ((GroupTable([3, 4, 5]), GroupTable([6, 7])), "groups 0 and 2 end at different blocks"),
        ((GroupTable([3, 4], 1), GroupTable([6, 7, 8])), "group 1 lacks blocks of its window"),
    ],
)
def test_a_plan_with_other_tables_than_groups_fails_by_name(folder, further, message):
    driver = Driver.of(load(folder))
    sequence = request(0, further_tables=further)
    result = driver.run([(0, 0, len(PROMPT), 1, 0)], new_sequences=[sequence])
    assert result.failure is not None
    assert message in result.failure.message
    assert driver.model_runner._slots.occupied() == []
