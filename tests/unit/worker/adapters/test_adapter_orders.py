"""Orders to load adapters on the worker's stream: real gRPC, a real model, and other workers that
hand out what they have in memory."""

import asyncio
import os
import socket
from contextlib import asynccontextmanager
from pathlib import Path

import grpc.aio
import pytest
import torch
from safetensors.torch import load_file, save_file

from pagewire_kvstore.adapters.blob_medium import BlobKey
from pagewire_protos.scheduler.v1 import worker_attach_pb2 as wire
from pagewire_protos.worker.v1 import adapter_content_pb2 as content_wire
from pagewire_protos.worker.v1 import adapter_content_pb2_grpc
from pagewire_shared.adapters.adapter_folder import check_content
from pagewire_shared.adapters.content_id import adapter_id_of
from pagewire_shared.adapters.shapes_convert import shapes_from_message
from pagewire_shared.adapters.tensor_header import AdapterBounds
from pagewire_shared.errors import PagewireError
from pagewire_shared.rpc.address import Address
from pagewire_worker.adapters import metrics
from pagewire_worker.adapters.loader import AdapterLoader
from pagewire_worker.adapters.warm import WarmAdapter, WarmAdapters
from pagewire_worker.link.adapter_client import fetch_adapter
from pagewire_worker.link.adapter_service import AdapterContentService
from pagewire_worker.link.scheduler_link import SchedulerLink
from pagewire_worker.runner.model_thread import ModelThread
from support.adapters.model_adapters import PREFIX, MadeAdapter, make_adapter
from support.cells.worker_driver import Driver, load, start
from support.checkpoints.checkpoints import make_checkpoint
from support.fakes.fake_scheduler import FakeScheduler, WorkerStream, listening
from support.processes.store_server import store_server

SLOTS = 2
KINDS = ("memory", "folder", "peer", "store")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return make_checkpoint(
        tmp_path_factory.mktemp("model"), architecture="LlamaForCausalLM", with_tokenizer=False
    )


@pytest.fixture(scope="module")
def replica(model):
    settings = {"enable_lora": True, "max_loras": SLOTS, "max_lora_rank": 8, "max_cpu_loras": 2}
    return load(model, cpu_backend="torch", kv_offload="off", **settings)


@pytest.fixture
def made(tmp_path, model):
    return [make_adapter(tmp_path / f"made-{seed}", model, seed=seed) for seed in range(4)]


class Attached:
    """The scheduler's end of the stream of a worker."""

    def __init__(self, stream: WorkerStream, hello: wire.WorkerHello) -> None:
        self.stream = stream
        self.hello = hello
        self.load_id = 0

    async def load(self, adapter_id: bytes, *sources: str, slot: int = 0, timeout_ms: int = 20_000):
        self.load_id += 1
        order = wire.LoadAdapter(
            load_id=self.load_id,
            adapter_id=adapter_id,
            adapter_slot=slot,
            sources=sources,
            timeout_ms=timeout_ms,
        )
        self.stream.send(load_adapter=order)
        answer = await self.stream.next("adapter_loaded")
        assert answer.load_id == self.load_id
        return answer


@pytest.fixture
async def attached(tmp_path, replica):
    scheduler = FakeScheduler()
    warm = WarmAdapters(2, 1 << 24)
    loader = AdapterLoader(replica.model_runner._adapters, warm)
    async with listening(scheduler, Address(path=f"{tmp_path}/s")):
        thread = ModelThread(asyncio.get_running_loop())
        thread.start()
        link = SchedulerLink(
            address=f"unix:{tmp_path}/s",
            info=replica.info,
            model_runner=replica.model_runner,
            thread=thread,
            attached=asyncio.Event(),
            adapters=loader,
        )
        task = asyncio.create_task(link.run())
        peer = Attached(*await scheduler.attach())
        peer.loader, peer.scheduler = loader, scheduler
        yield peer
        task.cancel()
        await asyncio.wait([task])
        await asyncio.to_thread(thread.stop, 5)


def in_folder(adapter: MadeAdapter) -> str:
    return f"file:{adapter.folder}"


async def test_the_hello_says_what_fits(attached):
    capacity = attached.hello.capacity
    assert (capacity.max_adapters, capacity.max_adapter_rank) == (SLOTS, 8)
    assert attached.hello.warm_adapters == b""
    shapes = shapes_from_message(attached.hello.adapter_shapes)
    found = shapes.find("model.layers.1.self_attn.q_proj")
    assert found is not None
    assert (found.num_inputs, found.layers) == (64, (0, 1))


async def test_content_stays_warm(attached, made):
    ids = [one.summary.adapter_id for one in made]
    for number in (0, 1):
        answer = await attached.load(ids[number], in_folder(made[number]), slot=number)
        assert not answer.HasField("error")
        assert not answer.was_warm
    assert attached.loader._slots.held == {0: ids[0], 1: ids[1]}
    # Nothing is read for it.
    assert (await attached.load(ids[0], slot=1)).was_warm
    # Slot 1 has gone to the first adapter, so that the second one may leave memory.
    answer = await attached.load(ids[2], in_folder(made[2]), slot=1)
    assert not answer.was_warm
    assert attached.loader.warm_ids == (ids[0], ids[2])
    attached.stream.end()
    _, hello = await attached.scheduler.attach(8)
    assert hello.warm_adapters == ids[0] + ids[2]


async def test_a_new_attach_empties_the_slots(attached, made):
    await attached.load(made[0].summary.adapter_id, in_folder(made[0]))
    attached.stream.end()
    await attached.scheduler.attach(8)
    async with asyncio.timeout(10):
        while attached.loader._slots.held:
            await asyncio.sleep(0.01)


async def test_a_hash_that_does_not_fit(attached, made):
    wanted = made[0].summary.adapter_id
    answer = await attached.load(wanted, in_folder(made[1]))
    assert "hash" in answer.error.message
    assert answer.error.field == "sources"
    # The next source is asked.
    answer = await attached.load(wanted, in_folder(made[1]), "file:/nowhere", in_folder(made[0]))
    assert not answer.HasField("error")


def rewritten(adapter: MadeAdapter, change) -> None:
    path = adapter.folder / "adapter_model.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path)


def first(tensors, end):
    return next(name for name in tensors if name.endswith(end))


def with_nan(tensors):
    tensors[first(tensors, "v_proj.lora_B.weight")][0, 0] = float("nan")


def too_wide(tensors):
    name = first(tensors, "q_proj.lora_A.weight")
    tensors[name] = torch.cat([tensors[name], tensors[name]], dim=1).contiguous()


def without_a_layer(tensors):
    for end in ("lora_A.weight", "lora_B.weight"):
        del tensors[f"{PREFIX}model.layers.1.self_attn.q_proj.{end}"]


def with_a_layer_too_many(tensors):
    for end in ("lora_A.weight", "lora_B.weight"):
        found = tensors[f"{PREFIX}model.layers.1.self_attn.q_proj.{end}"]
        tensors[f"{PREFIX}model.layers.7.self_attn.q_proj.{end}"] = found.clone()


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (with_nan, "not all values are finite"),
        (too_wide, "the matrix of the model takes [4, 64]"),
        (without_a_layer, "lacks the tensors of model.layers.1.self_attn.q_proj"),
        (with_a_layer_too_many, "model.layers.7.self_attn.q_proj: the model has no matrix"),
    ],
)
async def test_an_adapter_that_does_not_fit_the_model(attached, made, replica, change, text):
    good, bad = made[:2]
    await attached.load(good.summary.adapter_id, in_folder(good), slot=0)
    rewritten(bad, change)
    answer = await attached.load(bad.summary.adapter_id, in_folder(bad), slot=1)
    assert text in answer.error.message
    assert answer.error.code == "invalid_adapter"
    assert attached.loader._slots.held == {0: good.summary.adapter_id}
    assert bad.summary.adapter_id not in attached.loader.warm_ids


async def test_orders_that_contradict_the_contract(attached, made):
    adapter = made[0]
    for answer in (
        await attached.load(b"short", in_folder(adapter)),
        await attached.load(adapter.summary.adapter_id, in_folder(adapter), slot=SLOTS),
        await attached.load(adapter.summary.adapter_id),
        await attached.load(adapter.summary.adapter_id, "http://x", "grpc:nonsense"),
    ):
        assert answer.error.message
    assert not attached.loader._slots.held


async def test_a_rank_beyond_the_limit(attached, tmp_path, model):
    large = make_adapter(tmp_path / "large", model, rank=9)
    answer = await attached.load(large.summary.adapter_id, in_folder(large))
    assert "rank 9 is more than 8" in answer.error.message


async def test_a_source_that_hangs_costs_its_time_only(attached, made, tmp_path):
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(f"{tmp_path}/hangs")
        silent.listen()
        wanted = made[0].summary.adapter_id
        answer = await attached.load(wanted, f"grpc:unix:{tmp_path}/hangs", timeout_ms=300)
        assert answer.error.code in ("deadline_exceeded", "unavailable")
        assert not (await attached.load(wanted, in_folder(made[0]))).HasField("error")


async def test_a_sequence_whose_adapter_is_not_loaded(replica, made):
    driver = Driver.of(replica)
    for slot, text in ((1, "holds no adapter"), (SLOTS, "does not exist")):
        replica.model_runner._adapters.clear()
        result = start(driver, adapter_slot=slot)
        assert text in result.failure.message
        assert result.failure.culprit_slots == (0,)


@asynccontextmanager
async def serving(service, address):
    server = grpc.aio.server()
    adapter_content_pb2_grpc.add_AdapterContentServiceServicer_to_server(service, server)
    server.add_insecure_port(address)
    await server.start()
    yield
    await server.stop(0)


async def test_another_worker_hands_it_out(attached, made, tmp_path, replica):
    adapter, address = made[3], f"unix:{tmp_path}/peer"
    warm = WarmAdapters(1, 1 << 24)
    warm.add(WarmAdapter(adapter.content, adapter.summary), ())
    service = AdapterContentService()
    service.serve(AdapterLoader(replica.model_runner._adapters, warm))
    async with serving(service, address):
        wanted = adapter.summary.adapter_id
        answer = await attached.load(wanted, "file:/nowhere", f"grpc:{address}")
        assert not answer.HasField("error")
        with pytest.raises(PagewireError):
            await fetch_adapter(address, b"x" * 32, AdapterBounds())
    assert attached.loader.content(wanted) == adapter.content


@asynccontextmanager
async def hanging(path):
    """A socket that takes connections and says nothing."""
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(path))
        silent.listen()
        yield f"unix:{path}"


def num_loads():
    return {kind: metrics.LOADS.labels(kind)._value.get() for kind in KINDS}


async def test_stores_are_asked_last_and_each_for_a_while(
    attached, made, tmp_path, replica, monkeypatch
):
    """What hangs or lacks it costs its time only, folders come first, whatever their place."""
    monkeypatch.setattr("pagewire_worker.adapters.loader.STALL_SECONDS", 0.2)
    ids = [one.summary.adapter_id for one in made]
    peer = f"unix:{tmp_path}/peer"
    async with (
        hanging(tmp_path / "slow") as slow,
        store_server(socket=tmp_path / "empty") as empty,
        store_server(socket=tmp_path / "store") as store,
        serving(BadPeer(begun(CONFIG, 2)), peer),
    ):
        attached.stream.end()
        stores = (slow, empty.address, store.address)
        attached.stream, _ = await attached.scheduler.attach(8, stores=stores)
        for adapter in made[:2]:
            await keep(store, adapter.content)
        before = num_loads()
        answer = await attached.load(ids[0], f"grpc:{peer}", f"grpc:{slow}", "file:/nowhere")
        assert not answer.HasField("error")
        assert attached.loader.content(ids[0]) == made[0].content
        # Without a named source, and with a folder behind a server that hangs.
        assert not (await attached.load(ids[1])).HasField("error")
        monkeypatch.setattr("pagewire_worker.adapters.loader.STALL_SECONDS", 60.0)
        answer = await attached.load(ids[2], f"grpc:{slow}", in_folder(made[2]))
        assert not answer.HasField("error")
        grown = {kind: count - before[kind] for kind, count in num_loads().items()}
        assert grown == {"memory": 0, "folder": 1, "peer": 0, "store": 2}
        # No one has it: perhaps later, so that it is not the adapter that is at fault.
        monkeypatch.setattr("pagewire_worker.adapters.loader.STALL_SECONDS", 0.2)
        answer = await attached.load(ids[3], "file:/nowhere")
        assert answer.error.code == "unavailable"
        assert f"store {slow}: it sent next to nothing for 0.2 s" in answer.error.message
        assert f"store {store.address}: adapter {ids[3].hex()[:16]} is not" in answer.error.message


async def keep(store, content):
    """Put an adapter into a store."""
    adapter_id = adapter_id_of(content.config, content.weights)
    key = BlobKey(adapter_id, len(content.config), len(content.weights))
    upload = await store.adapters.begin(key)
    await upload.take(content.config + content.weights)
    await upload.publish()
    await upload.close()


class BadPeer(adapter_content_pb2_grpc.AdapterContentServiceServicer):
    """Answers with messages that a test chooses."""

    def __init__(self, *parts) -> None:
        self._parts = parts

    async def FetchAdapter(self, request, context):
        for part in self._parts:
            yield content_wire.FetchAdapterResponse(**part)


def begun(name, num_bytes):
    return {"file": content_wire.AdapterFile(name=name, num_bytes=num_bytes)}


CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"


@pytest.mark.parametrize(
    "parts",
    [
        (),
        ({"data": b"x"},),
        (begun("../../etc/passwd", 1),),
        (begun(CONFIG, 2), {"data": b"{}"}, begun(CONFIG, 2)),
        (begun(CONFIG, 2), {"data": b"{}x"}),
        (begun(CONFIG, 2), {"data": b"{"}, begun(WEIGHTS, 0)),
        (begun(CONFIG, 1 << 40),),
        (begun(CONFIG, 2), {"data": b"{}"}, begun(WEIGHTS, 1 << 60)),
        (begun(CONFIG, 2), {"data": b"{}"}),
    ],
)
async def test_peers_that_break_the_contract(parts, tmp_path):
    address = f"unix:{tmp_path}/bad"
    async with serving(BadPeer(*parts), address):
        with pytest.raises(PagewireError, match=r"file|data"):
            await fetch_adapter(address, b"x" * 32, AdapterBounds())


def test_warm_contents_are_bounded(made):
    adapters = [WarmAdapter(one.content, one.summary) for one in made]
    ids = [one.summary.adapter_id for one in adapters]
    size = adapters[0].content.num_bytes
    warm = WarmAdapters(10, 2 * size + size // 2)
    for adapter in adapters[:2]:
        warm.add(adapter, ())
    assert warm.find(ids[0])
    warm.add(adapters[2], ())
    assert warm.ids == (ids[0], ids[2])
    warm.add(adapters[3], {ids[0], ids[2]})
    assert warm.ids == (ids[0], ids[2])
    warm.add(adapters[3], {ids[0]})
    assert warm.ids == (ids[0], ids[3])
    assert warm.num_bytes == sum(adapters[n].content.num_bytes for n in (0, 3))
    few = WarmAdapters(1, 1 << 40)
    for adapter in adapters:
        few.add(adapter, ())
    assert few.ids == (ids[3],)


def test_content_of_a_folder_that_changes_is_another_one(made, tmp_path):
    """What is loaded is what was checked: the folder is read once."""
    content = made[0].content
    os.rename(made[1].folder / WEIGHTS, made[0].folder / WEIGHTS)
    assert check_content(content, AdapterBounds()).adapter_id != made[0].summary.adapter_id
    assert Path(made[0].folder).is_dir()
