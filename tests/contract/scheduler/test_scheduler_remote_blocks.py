"""A prompt whose blocks lie in a KV store, from the event of the store to the end that says where
its tokens came from, over real sockets; and what becomes of it when the store or the load fails."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from contract.scheduler_peers import (
    RunningScheduler,
    attached,
    eventually,
    frontend_of,
    quiet,
    running_scheduler,
)
from contract.scripted_frontend import ScriptedFrontend
from contract.scripted_kvstore import ScriptedKvStore
from contract.scripted_worker import ScriptedWorker, expected, loaded_completely

from pagewire_protos.kvstore.v1 import kv_store_pb2 as ks
from pagewire_protos.scheduler.v1 import worker_attach_pb2 as wa
from pagewire_shared.errors import WireError

PROMPT = list(range(1, 18))
NUM_BLOCKS = 4
"""Full blocks of the prompt before its last token."""


@asynccontextmanager
async def stored_prompt(
    folder: Path,
) -> AsyncIterator[tuple[RunningScheduler, ScriptedFrontend, ScriptedKvStore]]:
    """Yield a cell whose one worker has left a prompt in the store, and is gone."""
    address = f"unix:{folder}/kvstore.sock"
    store = ScriptedKvStore(address)
    async with (
        store.running(),
        running_scheduler(folder, kvstore=(address,)) as scheduler,
        frontend_of(scheduler) as frontend,
    ):
        async with attached(ScriptedWorker(scheduler.address)) as worker:
            await frontend.submit(1, PROMPT, max_tokens=1)
            await frontend.until(lambda: (1, 0) in frontend.finished)
            await quiet(scheduler)
            names = b"".join(plan.names for plan in worker.plans)
            assert len(names) == 16 * NUM_BLOCKS
            assert not frontend.finished[1, 0].cached_tokens
        await eventually(lambda: bool(store.requests))
        store.say(ks.WatchBlocksResponse(sequence=1, stored=ks.BlocksStored(names=names)))
        await eventually(lambda: scheduler.loop.core.stores.is_usable)
        await eventually(lambda: not scheduler.loop.workers)
        yield scheduler, frontend, store


async def answer(
    scheduler: RunningScheduler, frontend: ScriptedFrontend, worker: ScriptedWorker
) -> dict[str, int]:
    """Have a fresh worker answer the prompt; return where its cached tokens were."""
    async with attached(worker):
        await frontend.submit(2, PROMPT, max_tokens=5)
        await frontend.until(lambda: (2, 0) in frontend.finished)
        await quiet(scheduler)
        assert frontend.tokens[2, 0] == expected(PROMPT, 5)
        return {tier.tier: tier.num_tokens for tier in frontend.finished[2, 0].cached_tokens}


async def test_a_prompt_comes_from_the_store(tmp_path: Path) -> None:
    async with stored_prompt(tmp_path) as (scheduler, frontend, store):
        worker = ScriptedWorker(scheduler.address, loads_blocks=True)
        assert await answer(scheduler, frontend, worker) == {"memory": 4 * NUM_BLOCKS}
        (load,) = worker.loads
        assert load.kvstore_address == store.address
        assert len(load.names) == 16 * NUM_BLOCKS
        assert load.timeout_ms > 0


async def test_a_worker_that_loads_nothing_is_asked_nothing(tmp_path: Path) -> None:
    async with stored_prompt(tmp_path) as (scheduler, frontend, _):
        worker = ScriptedWorker(scheduler.address)
        assert await answer(scheduler, frontend, worker) == {}
        assert not worker.loads


def first_block(order: wa.LoadBlocks) -> wa.BlocksLoaded:
    return wa.BlocksLoaded(
        load_id=order.load_id,
        num_blocks=1,
        outcome=wa.LOAD_OUTCOME_MISSING,
        num_bytes=64,
        time_us=1000,
        tiers=[wa.LoadedFromTier(tier="disk", num_blocks=1)],
    )


def failed(order: wa.LoadBlocks) -> wa.BlocksLoaded:
    return wa.BlocksLoaded(load_id=order.load_id, outcome=wa.LOAD_OUTCOME_FAILED)


def silent(order: wa.LoadBlocks) -> None:
    return None


@pytest.mark.parametrize(
    ("answer_load", "tiers"), [(first_block, {"disk": 4}), (failed, {}), (silent, {})]
)
async def test_what_does_not_come_is_computed(
    tmp_path: Path,
    answer_load: Callable[[wa.LoadBlocks], wa.BlocksLoaded | None],
    tiers: dict[str, int],
) -> None:
    async with stored_prompt(tmp_path) as (scheduler, frontend, _):
        worker = ScriptedWorker(scheduler.address, loads_blocks=True, answer_load=answer_load)
        assert await answer(scheduler, frontend, worker) == tiers
        assert len(worker.loads) == 1


async def test_a_worker_that_says_too_much_is_cut_off(tmp_path: Path) -> None:
    def too_many(order: wa.LoadBlocks) -> wa.BlocksLoaded:
        got = loaded_completely(order)
        got.num_blocks += 1
        return got

    async with stored_prompt(tmp_path) as (scheduler, frontend, _):
        liar = ScriptedWorker(scheduler.address, loads_blocks=True, answer_load=too_many)
        await frontend.submit(3, PROMPT, max_tokens=5)
        with pytest.raises(WireError, match="has 5 of 4 blocks"):
            await liar.run()
        async with attached(ScriptedWorker(scheduler.address)):
            await frontend.until(lambda: (3, 0) in frontend.finished)
        assert frontend.tokens[3, 0] == expected(PROMPT, 5)
        assert not frontend.finished[3, 0].cached_tokens


async def test_a_store_that_restarted_empty_is_not_asked(tmp_path: Path) -> None:
    async with stored_prompt(tmp_path) as (scheduler, frontend, store):
        store.store_id = b"another store id"
        store.hang_up()
        await eventually(lambda: len(store.requests) == 2)
        await eventually(lambda: not scheduler.loop.core.stores.is_usable)
        worker = ScriptedWorker(scheduler.address, loads_blocks=True)
        assert await answer(scheduler, frontend, worker) == {}
        assert not worker.loads
