"""What a frontend loads comes into each KV store: also into one that is down at first, that starts
anew and empty, or that has room for some only. Real files and sockets."""

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import grpc.aio
import pytest

from pagewire_frontend.adapters import store_client
from pagewire_frontend.adapters.registry import AdapterRegistry
from pagewire_frontend.adapters.store import ContentFolder
from pagewire_frontend.adapters.store_client import AdapterStoreWriter
from pagewire_kvstore.service import SERVICE_NAME
from pagewire_protos.kvstore.v1.kv_store_pb2 import HelloResponse
from pagewire_shared.adapters.adapter_folder import read_adapter_files
from pagewire_shared.adapters.tensor_header import AdapterBounds
from pagewire_worker.link.adapter_client import fetch_adapter
from support.adapters.adapter_files import CONFIG, write_adapter
from support.processes.store_server import store_server, until

LARGE = 8192


class Writing:
    """A registry whose content a writer for one store writes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.address = f"unix:{folder}/kv.sock"
        content = ContentFolder(folder / "store", 1 << 20)
        self.adapters = AdapterRegistry(content, models=["tiny"], taken_names=[])
        self.outcomes: Counter[str] = Counter()
        note = lambda outcome: self.outcomes.update([outcome])  # noqa: E731
        self.writer = AdapterStoreWriter(self.address, self.adapters, note)
        self.adapters.on_content = self.writer.offer

    async def load(self, name: str, alpha: int, size: int = 0) -> bytes:
        config = json.dumps({**CONFIG, "lora_alpha": alpha}).encode() + b" " * size
        folder = write_adapter(self.folder / f"made{alpha}", config)
        return (await self.adapters.load(name, folder)).use.adapter_id


@pytest.fixture
async def writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Writing]:
    monkeypatch.setattr(store_client, "LOOK_SECONDS", 0.05)
    one = Writing(tmp_path)
    task = asyncio.create_task(one.writer.run())
    yield one
    assert not task.done()
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_stores_get_all_content_and_an_empty_one_gets_it_again(writing: Writing) -> None:
    # There is no store yet.
    first = await writing.load("a", 1)
    replaced = await writing.load("b", 2)
    second = await writing.load("b", 3)
    # A name has other content by now, but a stream may use what it stood for before.
    async with store_server(socket=writing.folder / "kv.sock") as server:
        await until(lambda: {*server.adapters.ids} == {first, replaced, second})
        third = await writing.load("c", 4)
        await until(lambda: third in server.adapters.ids)
        found = await fetch_adapter(server.address, third, AdapterBounds())
        assert found == read_adapter_files(writing.folder / "made4", AdapterBounds())
        # Another name of the same content is no other write.
        await writing.load("d", 4)
        await until(lambda: writing.outcomes["present"])
        assert writing.outcomes["written"] == 4
    async with store_server(socket=writing.folder / "kv.sock") as server:
        await until(lambda: {*server.adapters.ids} == {first, second, third})
    assert writing.outcomes["refused"] == 0


async def test_what_is_too_large_is_refused_once_and_holds_up_nothing(writing: Writing) -> None:
    async with store_server(socket=writing.folder / "kv.sock", adapter_bytes=LARGE) as server:
        await writing.load("large", 1, size=LARGE)
        small = await writing.load("small", 2)
        await until(lambda: server.adapters.ids == (small,))
        await asyncio.sleep(0.2)
        assert writing.outcomes == {"refused": 1, "written": 1}


class OldStore:
    """A store of a version that keeps no adapters."""

    num_hellos = 0

    async def hello(self, request: bytes, context: object) -> bytes:
        self.num_hellos += 1
        return HelloResponse(protocol=1, store_id=b"x" * 16).SerializeToString()


async def test_a_store_that_knows_no_adapters_is_left_alone_between_attempts(
    writing: Writing, caplog: pytest.LogCaptureFixture
) -> None:
    server, old = grpc.aio.server(), OldStore()
    methods = {"Hello": grpc.unary_unary_rpc_method_handler(old.hello)}
    handler = grpc.method_handlers_generic_handler(SERVICE_NAME, methods)
    server.add_generic_rpc_handlers((handler,))
    server.add_insecure_port(writing.address)
    await server.start()
    writing.writer._quiet_until = 0.0
    await writing.load("a", 1)
    await until(lambda: writing.outcomes["failed"] >= 2)
    await server.stop(0)
    assert old.num_hellos < 10
    assert sum("takes no adapters" in line for line in caplog.messages) == 1
