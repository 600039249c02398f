"""Servers that change bytes or are slow: nothing wrong is served, and no request waits for long."""

import asyncio
import time
from pathlib import Path

import pytest

from support.cells.kv_cells import Answer, ask, ask_all
from support.cells.outside_cells import NUM_LOADED, PROMPTS, cell_with, tokens
from support.processes.lying_proxy import LyingProxy, flip_bits
from support.processes.outside_stores import LmcacheServer, MooncakeMaster


@pytest.mark.parametrize("share", [1.0, 0.2])
def test_bytes_changed_on_the_way_are_never_served(
    lmcache: LmcacheServer, checkpoint: Path, expected: list[Answer], share: float
) -> None:
    with cell_with(checkpoint, lmcache.transfer_config) as cluster:
        assert tokens(asyncio.run(ask_all(cluster, PROMPTS))) == tokens(expected)
        time.sleep(1.0)
    with LyingProxy(lmcache.port) as proxy:
        proxy.change = flip_bits(share, seed=3)
        with cell_with(checkpoint, lmcache.config_at(proxy.address)) as fresh:
            answers = [ask(fresh, prompt) for prompt in PROMPTS]
            assert tokens(answers) == tokens(expected)
            assert proxy.num_changed
            if share == 1.0:
                assert sum(answer.num_loaded for answer in answers) == 0
            assert "were damaged or others than their keys say" in fresh.log


def test_a_slow_server_costs_a_bounded_wait(
    lmcache: LmcacheServer, checkpoint: Path, expected: list[Answer]
) -> None:
    with cell_with(checkpoint, lmcache.transfer_config) as cluster:
        assert tokens(asyncio.run(ask_all(cluster, PROMPTS))) == tokens(expected)
        time.sleep(1.0)
    with LyingProxy(lmcache.port) as proxy:
        proxy.delay = 1.0
        with cell_with(checkpoint, lmcache.config_at(proxy.address)) as fresh:
            for prompt, right in zip(PROMPTS, expected, strict=True):
                started = time.monotonic()
                assert ask(fresh, prompt).token_ids == right.token_ids
                assert time.monotonic() - started < 3


def test_a_slow_master_costs_a_bounded_wait(
    mooncake: MooncakeMaster, checkpoint: Path, expected: list[Answer]
) -> None:
    with LyingProxy(mooncake.port) as proxy:
        with cell_with(checkpoint, mooncake.config_at(proxy.address)) as cluster:
            assert ask(cluster, PROMPTS[0]).token_ids == expected[0].token_ids
            time.sleep(1.0)
            proxy.delay = 1.0
            for prompt, right in zip(PROMPTS, expected, strict=True):
                started = time.monotonic()
                assert ask(cluster, prompt).token_ids == right.token_ids
                assert time.monotonic() - started < 3
            proxy.delay = 0.0
        with cell_with(checkpoint, mooncake.config_at(proxy.address)) as fresh:
            answer = ask(fresh, PROMPTS[0])
            assert answer.token_ids == expected[0].token_ids
            assert answer.cached == {"mooncake": NUM_LOADED}
