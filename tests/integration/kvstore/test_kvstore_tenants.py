"""Tenants of one store and one worker: what one has stored, another neither finds nor displaces."""

import asyncio
from pathlib import Path

import pytest

from support.cells.kv_cells import (
    BLOCK_BYTES,
    ROOMY,
    Answer,
    ask,
    prompt_of,
    replace_worker,
    running,
)
from support.processes.kv_stores import KvStore, listed_names, tier_stats, wait_for_blocks
from support.processes.processes import wait_until

NUM_LOADED = 128
PROMPT = prompt_of(1, NUM_LOADED + 5)
# With the block that is full of what was answered.
NUM_BLOCKS = 9
NUM_FLOODING = 6
QUOTA_BLOCKS = 20


@pytest.mark.parametrize("is_sharing", [False, True])
def test_tenants_share_blocks_only_where_they_shall(
    tiny_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_sharing: bool
) -> None:
    if is_sharing:
        monkeypatch.setenv("PAGEWIRE_SHARE_PREFIXES_BETWEEN_TENANTS", "true")
    with (
        KvStore(tmp_path, "--memory-size", ROOMY) as store,
        running(tiny_checkpoint, store.address, kv_load="always") as cluster,
    ):
        first = ask(cluster, PROMPT, "one")
        assert first.cached == {}
        wait_for_blocks(store.address, NUM_BLOCKS)
        of_one = asyncio.run(listed_names(store.address))
        assert len(of_one) == NUM_BLOCKS
        # Neither the worker's blocks nor, once it is a fresh one, the store's.
        found = {"worker": NUM_LOADED} if is_sharing else {}
        assert ask(cluster, PROMPT, "two") == Answer(first.token_ids, found)
        # A worker that is killed takes along what it has not stored yet.
        wait_for_blocks(store.address, NUM_BLOCKS if is_sharing else 2 * NUM_BLOCKS)
        replace_worker(cluster)
        found = {"memory": NUM_LOADED} if is_sharing else {}
        assert ask(cluster, PROMPT, "three") == Answer(first.token_ids, found)
        if is_sharing:
            assert asyncio.run(listed_names(store.address)) == of_one
            return
        wait_for_blocks(store.address, 3 * NUM_BLOCKS)
        assert len(asyncio.run(listed_names(store.address)) - of_one) == 2 * NUM_BLOCKS
        replace_worker(cluster)
        for tenant in ("one", "two", "three"):
            assert ask(cluster, PROMPT, tenant) == Answer(first.token_ids, {"memory": NUM_LOADED})


def test_a_tenant_that_floods_has_its_quota_and_no_more(
    tiny_checkpoint: Path, tmp_path: Path
) -> None:
    # Without quotas the flood has more blocks than there is room for.
    flags = ("--memory-size", "256KiB", "--tenant-quota", str(QUOTA_BLOCKS * BLOCK_BYTES))
    with (
        KvStore(tmp_path, *flags) as store,
        running(tiny_checkpoint, store.address, kv_load="always") as cluster,
    ):
        quiet = ask(cluster, PROMPT, "quiet")
        wait_for_blocks(store.address, NUM_BLOCKS)
        of_quiet = asyncio.run(listed_names(store.address))
        flood = [prompt_of(10 + number, NUM_LOADED + 5) for number in range(NUM_FLOODING)]
        for prompt in flood:
            ask(cluster, prompt, "flood")
        wait_for_blocks(store.address, NUM_BLOCKS + QUOTA_BLOCKS)
        replace_worker(cluster)
        # The last one's blocks came last; wait for them, not for a number of blocks.
        found = wait_until(lambda: ask(cluster, flood[-1], "flood").cached, 30, "it is cached")
        assert set(found) <= {"memory", "worker"}
        assert asyncio.run(tier_stats(store.address))["memory"].num_blocks <= (
            NUM_BLOCKS + QUOTA_BLOCKS
        )
        assert of_quiet < asyncio.run(listed_names(store.address))
        assert ask(cluster, PROMPT, "quiet") == Answer(quiet.token_ids, {"memory": NUM_LOADED})
        assert ask(cluster, flood[0], "flood").cached == {}
