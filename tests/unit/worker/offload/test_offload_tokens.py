"""Blocks computed by one executor and loaded by another give the same tokens."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from pagewire_shared.errors import WireError
from pagewire_shared.kv.load import LoadOrder, LoadOutcome
from pagewire_worker.offload.kv_offload import KvOffload
from pagewire_worker.offload.kv_store_client import KvStoreConnector
from pagewire_worker.runner.model_thread import ModelThread
from support.cells.worker_driver import PROMPT, Driver, load, request
from support.fakes.kv_fake_store import FakeStore, storing
from support.oracles.family_checkpoints import make_family_checkpoint

NAMES = [b"1" * 16, b"2" * 16]
SECONDS = 20.0


class Worker:
    """An executor in its model thread with its offload."""

    def __init__(self, replica, offload, thread):
        self.replica = replica
        self.offload = offload
        self.thread = thread
        self.driver = Driver.of(replica)

    def run(self, rows, **fields):
        return self.thread.submit(lambda: self.driver.run_well(rows, **fields))

    async def prompt(self, blocks, tenant="", **fields):
        """Compute PROMPT in one step that names its two full blocks; return the next token."""
        new = request(0, blocks=blocks, tenant=tenant)
        names = {"named_blocks": blocks[:2], "names": NAMES, "named_slots": [0, 0], **fields}
        row = (0, 0, len(PROMPT), 1, 0)
        return (await self.run([row], new_sequences=[new], **names)).token_ids

    async def decode(self, count):
        tokens = []
        for index in range(count):
            step = await self.run([(0, len(PROMPT) + index, 1, 1, 0)])
            tokens += list(step.token_ids)
        return tokens


@asynccontextmanager
async def working(folder, address, **settings):
    replica = load(folder, block_size=16, **settings)
    thread = ModelThread(asyncio.get_running_loop())
    thread.start()
    offload = KvOffload(
        model_runner=replica.model_runner,
        offloader=replica.offloader,
        thread=thread,
        connector=KvStoreConnector(stall_seconds=5.0),
        layout=replica.info.layout,
        num_blocks=replica.info.num_blocks,
    )
    running = asyncio.create_task(offload.run())
    try:
        await offload.attach([address])
        yield Worker(replica, offload, thread)
    finally:
        running.cancel()
        await asyncio.wait((running,))
        await asyncio.to_thread(thread.stop, 5)


@pytest.fixture
async def store(tmp_path):
    made = FakeStore(tier="disk")
    made.address = f"unix:{tmp_path}/s"
    async with storing(made, made.address):
        yield made


@pytest.fixture
def worker(checkpoint, store):
    return lambda folder=None, **settings: working(
        folder or checkpoint("qwen3"), store.address, **settings
    )


@pytest.fixture(scope="module")
def latents(tmp_path_factory):
    """A model whose cache keeps latents."""
    return make_family_checkpoint(tmp_path_factory.mktemp("model"), "deepseek-v3")


async def stored(store, count=2):
    async with asyncio.timeout(SECONDS):
        while len(store.blocks) < count:
            await asyncio.sleep(0.005)


def order(store, /, blocks=(9, 4), names=NAMES, **fields):
    return LoadOrder(
        **{
            "load_id": 1,
            "store": store.address,
            "names": names,
            "blocks": blocks,
            "timeout_ms": int(1000 * SECONDS),
            **fields,
        }
    )


@pytest.mark.parametrize("kv_offload", ["writethrough", "writeback"])
@pytest.mark.parametrize("is_latent", [False, True])
async def test_a_second_executor_goes_on_with_equal_tokens(
    worker, store, latents, kv_offload, is_latent
):
    folder = latents if is_latent else None
    async with worker(folder, kv_offload=kv_offload) as first:
        begun = list(await first.prompt([5, 2, 7], tenant="a"))
        expected = begun + await first.decode(7)
        if kv_offload == "writeback":
            assert store.blocks == {}
            await first.run([], freed_slots=[0])
        await stored(store)
    assert store.tenants == dict.fromkeys(NAMES, "a")
    async with worker(folder) as second:
        answer = await second.offload.begin_load(order(store))
        assert (answer.num_blocks, answer.outcome) == (2, LoadOutcome.COMPLETE)
        assert answer.tiers == (("disk", 2),)
        held = await second.thread.submit(second.replica.model_runner.blocks.held_names)
        assert held == {9: NAMES[0], 4: NAMES[1]}
        # Only the tail is computed.
        row = (0, 32, len(PROMPT) - 32, 1, 0)
        new = request(0, blocks=[9, 4, 0])
        step = await second.run([row], new_sequences=[new])
        assert list(step.token_ids) + await second.decode(7) == expected
        # What came from the store is not sent back to it.
        assert store.got_chunks == 2


async def test_the_tokens_depend_on_what_is_loaded(worker, store):
    """Guards the test above: it must depend on what was loaded."""
    async with worker() as first:
        expected = list(await first.prompt([5, 2, 7])) + await first.decode(7)
        await stored(store)
    async with worker() as second:
        # As a load that answers without having written anything.
        row = (0, 32, len(PROMPT) - 32, 1, 0)
        step = await second.run([row], new_sequences=[request(0, blocks=[9, 4, 0])])
        assert list(step.token_ids) + await second.decode(7) != expected


async def test_evicted_blocks_are_flushed_before_they_are_written(worker, store):
    async with worker(kv_offload="writeback") as first:
        await first.prompt([5, 2, 7])
        await first.run([], freed_slots=[])
        blocks = [2, 5, 8]
        other = request(1, prompt=PROMPT[::-1], blocks=blocks)
        await first.run([(1, 0, len(PROMPT), 1, 0)], new_sequences=[other])
        await stored(store)
        flushed = dict(store.blocks)
    store.blocks.clear()
    async with worker() as first:
        await first.prompt([5, 2, 7])
        await stored(store)
    assert store.blocks == flushed


async def test_blocks_of_suspect_steps_are_not_offloaded(worker, store):
    async with worker(steps_in_flight=2) as first:
        # Block 99999 does not exist: the step fails, and the next one may have built on it.
        bad = request(3, blocks=[99_999])
        await first.thread.submit(lambda: first.driver.run([(3, 0, 1, 1, 0)], new_sequences=[bad]))
        await first.prompt([5, 2, 7])
        held = await first.thread.submit(first.replica.model_runner.blocks.held_names)
        assert held == {}
        await first.run([], named_blocks=[7], names=[b"3" * 16], named_slots=[0])
        await stored(store, 1)
    assert list(store.blocks) == [b"3" * 16]


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"blocks": (1, 10**6)}, "does not exist"),
        ({"blocks": (1,)}, "1 for 2 names"),
        ({"blocks": (1, 1)}, "twice"),
        ({"names": NAMES[:1] * 2}, "twice"),
        ({"names": [], "blocks": []}, "0 for 0"),
        ({"store": "unix:/elsewhere"}, "not in the welcome"),
    ],
)
async def test_bad_orders(worker, store, fields, text):
    async with worker() as made:
        with pytest.raises(WireError, match=text):
            made.offload.begin_load(order(store, **fields))


async def test_an_id_under_way_is_refused_and_free_again_later(worker, store):
    store.fault = "stop"
    async with worker() as made:
        first = made.offload.begin_load(order(store))
        with pytest.raises(WireError, match="under way"):
            made.offload.begin_load(order(store))
        await asyncio.sleep(0)
        made.offload.loads.cancel(1)
        assert (await first).outcome is LoadOutcome.CANCELLED
        made.offload.loads.cancel(1)
        again = made.offload.begin_load(order(store, timeout_ms=50))
        assert (await again).outcome is LoadOutcome.LATE


async def test_too_many_loads_at_once_fail_at_once(worker, store):
    store.fault = "stop"
    async with worker() as made:
        loads = [made.offload.begin_load(order(store, load_id=i)) for i in range(16)]
        answer = await made.offload.begin_load(order(store, load_id=99))
        assert answer.outcome is LoadOutcome.FAILED
        for load_id, running in enumerate(loads):
            made.offload.loads.cancel(load_id)
            await running


@pytest.mark.parametrize("fault", ["stop", "end", "refuse_layout", "never_publish", "no_credit"])
async def test_a_store_that_does_not_work_leaves_the_tokens_alone(worker, store, fault):
    async with worker() as first:
        expected = list(await first.prompt([5, 2, 7])) + await first.decode(3)
    store.blocks.clear()
    store.fault = fault
    async with worker() as second:
        answer = second.offload.begin_load(order(store, blocks=(3, 6), timeout_ms=500))
        assert list(await second.prompt([5, 2, 7])) + await second.decode(3) == expected
        assert (await answer).num_blocks == 0
    assert store.blocks == {}


async def test_without_a_store_nothing_is_copied_or_kept(worker, store):
    async with worker() as made:
        await made.offload.attach([])
        await made.prompt([5, 2, 7])
        await made.thread.submit(lambda: None)
        assert len(made.replica.offloader._unsent) == 0
        await made.offload.attach([store.address])
        await made.run([], named_blocks=[5, 2], names=NAMES, named_slots=[0, 0])
        await stored(store)


async def test_a_connector_that_takes_no_stores_leaves_the_worker_without(worker, store):
    async with worker() as made:

        async def register(layout, addresses):
            raise ZeroDivisionError("a bug")

        await made.offload.attach([])
        made.offload._connector.register = register
        await made.offload.attach([store.address])
        assert len(await made.prompt([5, 2, 7])) == 1
        answer = await made.offload.begin_load(order(store))
        assert (answer.num_blocks, answer.outcome) == (0, LoadOutcome.FAILED)
        # The next attach tries again.
        del made.offload._connector.register
        await made.offload.attach([store.address])
        await made.run([], named_blocks=[5, 2], names=NAMES, named_slots=[0, 0])
        await stored(store)


def test_off_is_off(checkpoint):
    replica = load(checkpoint("qwen3"), kv_offload="off")
    assert replica.offloader is None
    assert not replica.info.loads_blocks
    assert load(checkpoint("qwen3")).info.loads_blocks
