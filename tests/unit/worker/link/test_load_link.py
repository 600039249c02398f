"""Loads on the worker's stream, with a real gRPC scheduler of a few lines and a real store."""

import asyncio
from dataclasses import replace

import pytest

from pagewire_protos.scheduler.v1 import worker_attach_pb2 as wire
from pagewire_shared import PROTOCOL_MAX
from pagewire_shared.kv.arrays import pack_names, pack_u32
from pagewire_shared.rpc.address import Address
from pagewire_worker.link.scheduler_link import SchedulerLink
from pagewire_worker.offload.connector import OutgoingBlock
from pagewire_worker.offload.kv_offload import KvOffload
from pagewire_worker.offload.kv_store_client import KvStoreConnector
from pagewire_worker.runner.model_thread import ModelThread
from pagewire_worker.runner.readback import DeviceLostError
from support.cells.worker_driver import load
from support.fakes.fake_scheduler import FakeScheduler, listening
from support.fakes.kv_fake_store import FakeStore, storing
from support.kernels.held_readback import HeldReadback

NAMES = [bytes([index]) * 16 for index in range(1, 5)]


class Attached:
    """One end of the stream of a worker, which runs beside the test."""

    def __init__(self, scheduler, store, address, replica):
        self.scheduler = scheduler
        self.store = store
        self.address = address
        self.replica = replica
        self.stream = None
        self.hello = None

    async def attach(self, generation=7):
        stream = await asyncio.wait_for(self.scheduler.attaches.get(), 20)
        self.hello = await stream.next("hello")
        stream.send(
            welcome=wire.WorkerWelcome(
                protocol=PROTOCOL_MAX, generation=generation, kvstore_addresses=[self.address]
            )
        )
        self.stream = stream

    async def fill(self, count):
        """Put `count` blocks of some bytes into the store."""
        connector, layout = KvStoreConnector(), self.replica.info.layout
        await connector.register(layout, [self.address])
        payload = memoryview(bytes(layout.bytes_per_block))
        await connector.put([OutgoingBlock(name, None, payload) for name in NAMES[:count]])
        await connector.close()

    def order(self, load_id=1, **fields):
        message = {
            "load_id": load_id,
            "kvstore_address": self.address,
            "names": pack_names(NAMES),
            "blocks": pack_u32([6, 2, 8, 4]),
            "timeout_ms": 20_000,
            **fields,
        }
        self.stream.send(load_blocks=wire.LoadBlocks(**message))

    async def until(self, condition):
        async with asyncio.timeout(20):
            while not condition():
                await asyncio.sleep(0.01)

    async def answer(self):
        return await self.stream.next("blocks_loaded")


@pytest.fixture(scope="module")
def replica(tmp_path_factory):
    from support.checkpoints.checkpoints import make_checkpoint

    folder = make_checkpoint(
        tmp_path_factory.mktemp("model"), architecture="LlamaForCausalLM", with_tokenizer=False
    )
    return load(folder, block_size=16)


@pytest.fixture
async def attached(tmp_path, replica):
    scheduler, store = FakeScheduler(), FakeStore()
    address = f"unix:{tmp_path}/kv"
    replica.model_runner.blocks.load_blocks([], [], [], replica.offloader.load_staging)
    async with listening(scheduler, Address(path=f"{tmp_path}/s")), storing(store, address):
        thread = ModelThread(asyncio.get_running_loop())
        thread.start()
        offload = KvOffload(
            model_runner=replica.model_runner,
            offloader=replica.offloader,
            thread=thread,
            connector=KvStoreConnector(),
            layout=replica.info.layout,
            num_blocks=replica.info.num_blocks,
        )
        link = SchedulerLink(
            address=f"unix:{tmp_path}/s",
            info=replica.info,
            model_runner=replica.model_runner,
            thread=thread,
            attached=asyncio.Event(),
            offload=offload,
        )
        tasks = [asyncio.create_task(link.run()), asyncio.create_task(offload.run())]
        peer = Attached(scheduler, store, address, replica)
        await peer.attach()
        # The store is greeted at the attach; only then may it stop.
        await peer.until(lambda: len(store.layouts) == 2)
        yield peer
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        await asyncio.to_thread(thread.stop, 5)


async def test_the_hello_says_that_it_loads(attached):
    assert attached.hello.loads_blocks


async def test_a_load_is_answered_with_what_came(attached):
    await attached.fill(3)
    attached.store.tier = "redis"
    attached.order()
    answer = await attached.answer()
    assert answer.load_id == 1
    assert answer.num_blocks == 3
    assert answer.outcome == wire.LOAD_OUTCOME_MISSING
    assert answer.num_bytes == 3 * attached.replica.info.layout.bytes_per_block
    assert answer.time_us > 0
    assert [(tier.tier, tier.num_blocks) for tier in answer.tiers] == [("redis", 3)]
    held = attached.replica.model_runner.blocks.held_names()
    assert [held.get(block) for block in (6, 2, 8, 4)] == [*NAMES[:3], None]


async def test_several_loads_run_side_by_side(attached):
    attached.store.fault = "stop"
    attached.order(1, timeout_ms=10_000)
    attached.order(2, timeout_ms=200)
    attached.order(3)
    attached.stream.send(cancel_load=wire.CancelLoad(load_id=3))
    answers = {}
    for _ in range(2):
        answer = await attached.answer()
        answers[answer.load_id] = answer.outcome
    assert answers == {2: wire.LOAD_OUTCOME_LATE, 3: wire.LOAD_OUTCOME_CANCELLED}
    attached.stream.send(cancel_load=wire.CancelLoad(load_id=1))
    assert (await attached.answer()).outcome == wire.LOAD_OUTCOME_CANCELLED


async def test_a_load_that_was_cancelled_twice_is_answered_once(attached):
    attached.store.fault = "stop"
    attached.order(1)
    for load_id in (1, 1, 77):
        attached.stream.send(cancel_load=wire.CancelLoad(load_id=load_id))
    assert (await attached.answer()).load_id == 1
    attached.store.fault = ""
    attached.order(2, blocks=pack_u32([1, 3, 5, 7]))
    assert (await attached.answer()).load_id == 2


async def test_loads_end_with_their_attach(attached):
    attached.store.fault = "stop"
    attached.order(1)
    await attached.until(lambda: attached.store.num_gets == 1)
    attached.stream.end()
    await attached.attach(generation=8)
    attached.store.fault = ""
    # The id is free again, and the answer is that of the new load.
    attached.order(1, names=pack_names(NAMES[:1]), blocks=pack_u32([1]))
    answer = await attached.answer()
    assert (answer.load_id, answer.outcome) == (1, wire.LOAD_OUTCOME_MISSING)


@pytest.mark.parametrize(
    "fields",
    [
        {"blocks": pack_u32([1])},
        {"blocks": b"123"},
        {"names": b"short"},
        {"blocks": pack_u32([1, 2, 3, 4_000_000])},
        {"blocks": pack_u32([1, 1, 2, 3])},
        {"kvstore_address": "unix:/elsewhere"},
        {"timeout_ms": 0},
    ],
)
async def test_a_bad_order_ends_the_stream(attached, fields):
    attached.order(**fields)
    await attached.attach(generation=8)
    attached.order(5)
    assert (await attached.answer()).load_id == 5


async def test_two_orders_of_one_id_end_the_stream(attached):
    attached.store.fault = "stop"
    attached.order(5)
    attached.order(5)
    await attached.attach(generation=8)


async def test_a_worker_without_offload_says_so(tmp_path, replica):
    scheduler = FakeScheduler()
    async with listening(scheduler, Address(path=f"{tmp_path}/s")):
        thread = ModelThread(asyncio.get_running_loop())
        thread.start()
        info = replace(replica.info, loads_blocks=False)
        link = SchedulerLink(
            address=f"unix:{tmp_path}/s",
            info=info,
            model_runner=replica.model_runner,
            thread=thread,
            attached=asyncio.Event(),
        )
        task = asyncio.create_task(link.run())
        _, hello = await scheduler.attach()
        assert not hello.loads_blocks
        task.cancel()
        await asyncio.wait((task,))
        await asyncio.to_thread(thread.stop, 5)


async def test_a_worker_whose_device_is_lost_ends(tmp_path, replica, monkeypatch):
    scheduler, readback = FakeScheduler(), HeldReadback()
    monkeypatch.setattr(replica.model_runner, "_readback", readback)
    monkeypatch.setattr(replica.model_runner.backend, "forward", lambda batch: 1 / 0)
    readback.has_failed = True
    async with listening(scheduler, Address(path=f"{tmp_path}/s")):
        thread = ModelThread(asyncio.get_running_loop())
        thread.start()
        info = replace(replica.info, loads_blocks=False)
        link = SchedulerLink(
            address=f"unix:{tmp_path}/s",
            info=info,
            model_runner=replica.model_runner,
            thread=thread,
            attached=asyncio.Event(),
        )
        task = asyncio.create_task(link.run())
        stream, hello = await scheduler.attach()
        new = wire.NewRequest(
            slot=0,
            request_id=bytes(16),
            prompt_token_ids=pack_u32([5, 6, 7]),
            sampling={"temperature": 0.0},
            block_tables=[{"block_ids": pack_u32([0])}],
        )
        plan = wire.StepPlan(
            generation=7,
            incarnation=hello.incarnation,
            step_id=1,
            new_requests=[new],
            slots=pack_u32([0]),
            starts=pack_u32([0]),
            num_new_tokens=pack_u32([3]),
            samples=bytes([1]),
            num_new_blocks=pack_u32([0]),
        )
        stream.send(plan=plan)
        with pytest.raises(DeviceLostError, match="step 1: division by zero"):
            await asyncio.wait_for(task, 20)
        await asyncio.to_thread(thread.stop, 5)
