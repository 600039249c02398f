"""Adapters in a KV store: what frontends write over a socket is what workers read, within a bound,
and nothing is left of what was not whole. On a real disk, and in memory."""

import asyncio
import errno
import os
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from pagewire_kvstore.adapters.blob_files import BlobFiles, FileDraft
from pagewire_kvstore.adapters.blob_keeper import BlobKeeper
from pagewire_kvstore.adapters.blob_medium import PAGE_BYTES, BlobKey
from pagewire_kvstore.adapters.blob_memory import BlobMemory
from pagewire_kvstore.adapters.content_service import PIECE_BYTES
from pagewire_protos.kvstore.v1 import adapter_store_pb2 as pb
from pagewire_protos.kvstore.v1.adapter_store_pb2_grpc import AdapterStoreServiceStub
from pagewire_shared.adapters.adapter_folder import AdapterContent
from pagewire_shared.adapters.content_id import adapter_id_of
from pagewire_shared.adapters.tensor_header import AdapterBounds
from pagewire_shared.errors import (
    DeadlineError,
    InternalError,
    InvalidRequestError,
    ModelNotFoundError,
    OverloadedError,
    PagewireError,
    StartupError,
    UnavailableError,
)
from pagewire_shared.rpc.errors import from_rpc_error
from pagewire_worker.link.adapter_client import fetch_adapter
from support.processes.store_server import store_server, until

CAPACITY = 3 * PAGE_BYTES


def content(number: int, size: int = PAGE_BYTES - 8) -> AdapterContent:
    """An adapter of one page, unless `size` is more: the store reads no tensors."""
    return AdapterContent(b"{%06d}" % number, number.to_bytes(4, "big") * (size // 4))


def id_of(one: AdapterContent) -> bytes:
    return adapter_id_of(one.config, one.weights)


def key_of(one: AdapterContent) -> BlobKey:
    return BlobKey(id_of(one), len(one.config), len(one.weights))


def begun(one: AdapterContent, **changes: object) -> pb.StoreAdapterRequest:
    sizes = {"num_config_bytes": len(one.config), "num_weight_bytes": len(one.weights)}
    fields = {"adapter_id": id_of(one), **sizes, **changes}
    return pb.StoreAdapterRequest(begin=pb.AdapterBegin(**fields))


def sent(data: bytes) -> pb.StoreAdapterRequest:
    return pb.StoreAdapterRequest(data=data)


def pieces(one: AdapterContent) -> list[pb.StoreAdapterRequest]:
    data = one.config + one.weights
    return [sent(data[at : at + PIECE_BYTES]) for at in range(0, len(data), PIECE_BYTES)]


async def write(server, *requests: pb.StoreAdapterRequest) -> list[str]:
    """Send a begin, and the rest once it is wanted; return the kinds of the answers."""
    for _ in range(10):
        try:
            return await written(server, *requests)
        except InternalError as error:
            # gRPC says so where the end of the call meets a write.
            if "from Core" not in error.message:
                raise
    raise AssertionError("gRPC gives no status")


async def written(server, *requests: pb.StoreAdapterRequest) -> list[str]:
    call: Any = AdapterStoreServiceStub(server.channel).StoreAdapter()
    found = []
    try:
        for request in requests:
            await call.write(request)
            if not found:
                found.append((await call.read()).WhichOneof("answer"))
                if found == ["stored"]:
                    return found
        await call.done_writing()
        while (answer := await call.read()) is not grpc.aio.EOF:
            found.append(answer.WhichOneof("answer"))
    except grpc.aio.AioRpcError as error:
        raise from_rpc_error(error) from error
    return found


async def store(server, *adapters: AdapterContent) -> None:
    for one in adapters:
        assert await write(server, begun(one), *pieces(one)) == ["wanted", "stored"]


async def fetch(server, one: AdapterContent) -> AdapterContent:
    return await fetch_adapter(server.address, id_of(one), AdapterBounds())


@pytest.fixture(params=["memory", "disk"])
def disk(request, tmp_path: Path) -> Path | None:
    return tmp_path / "disk" if request.param == "disk" else None


async def test_what_was_written_is_read(disk: Path | None) -> None:
    small, large = content(1), content(2, 2 * PIECE_BYTES + 4)
    async with store_server(disk=disk) as server:
        await store(server, small, large)
        assert [await fetch(server, one) for one in (small, large)] == [small, large]
        assert await write(server, begun(small)) == ["stored"]
        with pytest.raises(ModelNotFoundError):
            await fetch(server, content(3))
        held = sum(-(-one.num_bytes // PAGE_BYTES) for one in (small, large)) * PAGE_BYTES
        assert server.adapters.num_bytes == held


GOOD = content(7)
WHOLE = GOOD.config + GOOD.weights
HOSTILE = {
    "another hash": ([begun(GOOD), sent(WHOLE[:-1] + b"x")], "adapter_id"),
    "the hash of other borders": (
        [begun(GOOD, num_config_bytes=9, num_weight_bytes=len(WHOLE) - 9), sent(WHOLE)],
        "adapter_id",
    ),
    "too long": ([begun(GOOD), sent(WHOLE), sent(b"x")], "data"),
    "cut short": ([begun(GOOD), sent(WHOLE[:-1])], "data"),
    "nothing behind its begin": ([begun(GOOD)], "data"),
    "a huge size": ([begun(GOOD, num_weight_bytes=1 << 63), sent(WHOLE)], "num_weight_bytes"),
    "more than the store": ([begun(GOOD, num_weight_bytes=CAPACITY + 1)], "num_weight_bytes"),
    "a huge config": ([begun(GOOD, num_config_bytes=1 << 30), sent(WHOLE)], "num_config_bytes"),
    "no config": ([begun(GOOD, num_config_bytes=0), sent(WHOLE)], "num_config_bytes"),
    "no identity": ([begun(GOOD, adapter_id=b"../../etc/passwd"), sent(WHOLE)], "adapter_id"),
    "data first": ([sent(WHOLE)], "begin"),
    "two begins": ([begun(GOOD), begun(GOOD)], "begin"),
    "an empty piece": ([begun(GOOD), sent(b"")], "data"),
    "a piece that is too large": ([begun(GOOD), sent(bytes(PIECE_BYTES + 1))], "data"),
    "nothing": ([], "begin"),
}


async def test_hostile_writes_are_one_clear_error_each_and_leave_nothing(
    disk: Path | None,
) -> None:
    kept = content(1)
    async with store_server(disk=disk, adapter_bytes=CAPACITY) as server:
        await store(server, kept)
        for title, (requests, field) in HOSTILE.items():
            with pytest.raises(InvalidRequestError) as caught:
                await write(server, *requests)
            assert caught.value.field == field, title
            assert server.adapters.ids == (id_of(kept),), title
            assert server.adapters.num_bytes == PAGE_BYTES, title
        if disk is not None:
            assert not [*(disk / "adapters" / "temp").iterdir()]
        assert await fetch(server, kept) == kept
        await store(server, GOOD)


async def test_a_writer_that_stalls_or_leaves_gives_way_to_another(disk: Path | None) -> None:
    async with store_server(disk=disk, stall_seconds=0.3) as server:
        stub = AdapterStoreServiceStub(server.channel)
        for number, leaves in enumerate((True, False)):
            one, before = content(number), number * PAGE_BYTES
            first: Any = stub.StoreAdapter()
            await first.write(begun(one))
            assert (await first.read()).HasField("wanted")
            await first.write(sent(one.config))
            await until(lambda before=before: server.adapters.num_bytes > before)
            second = asyncio.create_task(write(server, begun(one), *pieces(one)))
            await asyncio.sleep(0.05)
            assert not second.done()
            if leaves:
                first.cancel()
            else:
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await first.read()
                assert isinstance(from_rpc_error(caught.value), DeadlineError)
            assert await second == ["wanted", "stored"]
            assert server.adapters.num_bytes == before + PAGE_BYTES


async def test_the_one_used_longest_ago_leaves_but_not_while_it_is_read(
    disk: Path | None,
) -> None:
    adapters = [content(number) for number in range(6)]
    ids = [id_of(one) for one in adapters]
    async with store_server(disk=disk, adapter_bytes=CAPACITY) as server:
        await store(server, *adapters[:3])
        await fetch(server, adapters[0])
        await store(server, adapters[3])
        assert server.adapters.ids == (ids[2], ids[0], ids[3])
        async with server.adapters.reading(ids[2]) as reading:
            await store(server, adapters[4])
            assert server.adapters.ids == (ids[3], ids[2], ids[4])
            async with server.adapters.reading(ids[3]), server.adapters.reading(ids[4]):
                with pytest.raises(OverloadedError, match="--adapter-bytes"):
                    await store(server, adapters[5])
                assert server.adapters.num_bytes == CAPACITY
            whole = adapters[2].config + adapters[2].weights
            assert await reading.read(len(whole)) == whole
            await reading.verify()
        await store(server, adapters[5])
        assert server.adapters.num_bytes == CAPACITY
        if disk is not None:
            assert len([*(disk / "adapters").glob("*.adapter")]) == 3


async def test_a_disk_keeps_what_is_whole_over_a_restart(tmp_path: Path) -> None:
    adapters = [content(number) for number in range(5)]
    async with store_server(disk=tmp_path, adapter_bytes=5 * PAGE_BYTES) as server:
        await store(server, *adapters)
    folder = tmp_path / "adapters"
    paths = [BlobFiles(tmp_path).path_of(key_of(one)) for one in adapters]
    for age, path in enumerate(paths):
        os.utime(path, (1000 - age, 1000 - age))
    os.truncate(paths[1], 100)
    (folder / "temp" / "1-0").write_bytes(b"half of one")
    (folder / "someone's notes").write_bytes(b"")
    damaged = bytearray(paths[2].read_bytes())
    damaged[-1] ^= 1
    paths[2].write_bytes(damaged)
    os.utime(paths[2], (2000, 2000))
    async with store_server(disk=tmp_path, adapter_bytes=CAPACITY) as server:
        # The one used longest ago had to leave, and the one that was cut short.
        ids = [id_of(adapters[number]) for number in (3, 0, 2)]
        assert server.adapters.ids == (*ids,)
        assert await fetch(server, adapters[0]) == adapters[0]
        with pytest.raises(InternalError, match="damaged"):
            await fetch(server, adapters[2])
        with pytest.raises(ModelNotFoundError):
            await fetch(server, adapters[2])
        paths[3].unlink()
        with pytest.raises(UnavailableError):
            await fetch(server, adapters[3])
        await store(server, adapters[2], adapters[3])
    left = {path.name for path in folder.iterdir()}
    assert left == {"temp", "someone's notes", *(paths[n].name for n in (0, 2, 3))}
    assert not [*(folder / "temp").iterdir()]
    assert {oct(path.stat().st_mode & 0o777) for path in folder.glob("*.adapter")} == {"0o600"}


async def test_zero_bytes_keep_nothing_and_a_folder_that_fails_ends_the_start(
    tmp_path: Path,
) -> None:
    async with store_server(adapter_bytes=0) as server:
        with pytest.raises(InvalidRequestError, match="--adapter-bytes"):
            await store(server, content(1))
    (tmp_path / "adapters").write_bytes(b"no folder")
    with pytest.raises(StartupError, match="--disk-path"):
        async with store_server(disk=tmp_path):
            pass


class FullFiles(BlobFiles):
    """A disk that is full."""

    def create(self, key: BlobKey) -> FileDraft:
        draft = super().create(key)
        draft.write = self.refuse  # type: ignore[method-assign]
        return draft

    def refuse(self, data: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")


async def test_a_full_disk_and_full_memory_are_errors_that_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = content(1)
    full = BlobKeeper(FullFiles(tmp_path), CAPACITY)
    upload = await full.begin(key_of(one))
    assert upload is not None
    with pytest.raises(UnavailableError, match="No space left"):
        await upload.take(one.config)
    await upload.close()
    assert (full.num_bytes, [*(tmp_path / "adapters" / "temp").iterdir()]) == (0, [])
    monkeypatch.setattr(
        "pagewire_kvstore.adapters.blob_memory.available_bytes", lambda: (100, "its group")
    )
    memory = BlobKeeper(BlobMemory(), CAPACITY)
    for _ in range(2):
        with pytest.raises(OverloadedError, match="its group leaves 100"):
            await memory.begin(key_of(one))
    for keeper in (full, memory):
        keeper.close()


async def test_too_many_writers_are_refused() -> None:
    async with store_server(max_adapter_puts=1) as server:
        first: Any = AdapterStoreServiceStub(server.channel).StoreAdapter()
        await first.write(begun(content(1)))
        assert (await first.read()).HasField("wanted")
        with pytest.raises(PagewireError, match="adapter_put"):
            await store(server, content(2))
        first.cancel()
