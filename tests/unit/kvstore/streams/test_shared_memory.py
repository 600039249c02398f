"""Workers of the same host write blocks into the store's memory, and read them there."""

import asyncio
import contextlib
import mmap
import os
import signal
import struct
import subprocess
import sys
from pathlib import Path

import grpc
import grpc.aio
import pytest

from pagewire_kvstore.store_process import arena_path
from pagewire_kvstore.streams import get_stream
from pagewire_protos.kvstore.v1 import kv_store_pb2
from pagewire_shared.convert import protocol_range
from pagewire_shared.errors import StartupError
from pagewire_shared.kv.arena import Arena
from pagewire_shared.kv.arena_folder import arena_facts
from pagewire_shared.kv.checksum import crc32c
from pagewire_shared.kv.extents import GRANULE_BYTES
from support.processes.store_server import (
    announced,
    granted,
    layout,
    name_of,
    names_in,
    opened,
    payload_of,
    refused,
    store_server,
    until,
)

SHAPE = layout(GRANULE_BYTES, 1000)
SIZES = (GRANULE_BYTES, 1000)


class Peer:
    """A worker that has mapped the store's memory."""

    def __init__(self, server, memory):
        self.server = server
        self.memory = memory

    def write(self, wanted):
        """Write what is wanted where it is wanted; checksums by name."""
        names = names_in(wanted.names)
        offsets = struct.unpack(f"<{2 * len(names)}Q", wanted.offsets)
        checksums = {}
        for index, name in enumerate(names):
            number = int.from_bytes(name, "big")
            for group, size in enumerate(SIZES):
                data = payload_of(number, size, group)
                offset = offsets[2 * index + group]
                self.memory[offset : offset + size] = data
                checksums.setdefault(name, []).append(crc32c(data))
        return checksums

    async def announce(self, call, *numbers):
        await call.write(announced(SHAPE, *numbers, use_shared_memory=True))
        return await self.server.answer(call, "wanted")

    async def put(self, *numbers):
        call = self.server.stub.Put()
        wanted = await self.announce(call, *numbers)
        await call.write(to_publish(self.write(wanted)))
        published = await self.server.answer(call, "published")
        call.cancel()
        return names_in(published.names)

    def read(self, shared):
        """The payloads that a GetShared tells of, which are right, by name."""
        names = names_in(shared.names)
        offsets = struct.unpack(f"<{2 * len(names)}Q", shared.offsets)
        checksums = struct.unpack(f"<{2 * len(names)}I", shared.checksums)
        places = zip(offsets, SIZES * len(names), strict=True)
        parts = [self.memory[offset : offset + size] for offset, size in places]
        assert tuple(map(crc32c, parts)) == checksums
        return {name: parts[2 * at : 2 * at + 2] for at, name in enumerate(names)}


def payloads_of(number):
    return [payload_of(number, size, group) for group, size in enumerate(SIZES)]


def to_publish(checksums):
    return kv_store_pb2.PutRequest(
        publish=kv_store_pb2.PutPublish(
            names=b"".join(checksums),
            checksums=b"".join(struct.pack("<2I", *pair) for pair in checksums.values()),
        )
    )


def released(*numbers):
    names = b"".join(map(name_of, numbers))
    return kv_store_pb2.GetRequest(release=kv_store_pb2.GetRelease(names=names))


@contextlib.contextmanager
def mapped(told):
    """Map what the store told of, as a worker does."""
    found = os.stat(told.path)
    assert (told.device, told.inode) == (found.st_dev, found.st_ino)
    assert told.num_bytes == found.st_size
    assert told.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    with Path(told.path).open("r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
        yield memory


@contextlib.asynccontextmanager
async def peer_of_store(folder, **options):
    path = arena_path(str(folder), 0)
    async with store_server(shared=path, **options) as server:
        answer = await server.stub.Hello(kv_store_pb2.HelloRequest(protocol=protocol_range()))
        with mapped(answer.shared_memory) as memory:
            yield Peer(server, memory)
    assert not path.exists()


async def test_a_block_written_to_shared_memory_can_be_read(tmp_path):
    async with peer_of_store(tmp_path) as peer:
        assert await peer.put(1, 2) == [name_of(1), name_of(2)]
        call = peer.server.stub.Get()
        await call.write(opened(SHAPE, 1, 3, 2, use_shared_memory=True))
        await call.write(granted(4))
        assert (await call.read()).source.tier == "memory"
        for number in (1, 2):
            response = await call.read()
            if response.HasField("missing"):
                assert response.missing.names == name_of(3)
                response = await call.read()
            assert peer.read(response.shared) == {name_of(number): payloads_of(number)}
            await call.write(released(number))
        assert await call.read() is grpc.aio.EOF
        # Those who share no memory get chunks.
        parts, _ = await peer.server.get(SHAPE, 1)
        assert parts[1, 0] == payload_of(1, GRANULE_BYTES)
        assert peer.server.held_bytes == 0


async def test_a_block_takes_as_many_credits_as_groups(tmp_path):
    async with peer_of_store(tmp_path) as peer:
        await peer.put(1, 2)
        call = peer.server.stub.Get()
        await call.write(opened(SHAPE, 1, 2, use_shared_memory=True))
        await call.write(granted(3))
        assert (await call.read()).HasField("source")
        assert (await call.read()).HasField("shared")
        read = asyncio.ensure_future(call.read())
        assert not (await asyncio.wait([read], timeout=0.1))[0]
        await call.write(granted(1))
        assert (await read).shared.names == name_of(2)
        call.cancel()


async def test_one_message_lists_a_bounded_number_of_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr(get_stream, "_MAX_SHARED_BYTES", 32 * GRANULE_BYTES)
    numbers = range(1, 41)
    async with peer_of_store(tmp_path, memory_bytes=80 * GRANULE_BYTES) as peer:
        await peer.server.put(SHAPE, *numbers)
        call = peer.server.stub.Get()
        await call.write(opened(SHAPE, *numbers, use_shared_memory=True))
        await call.write(granted(80))
        assert (await call.read()).HasField("source")
        told = [(await call.read()).shared for _ in range(2)]
        parts = [peer.read(shared) for shared in told]
        assert len(parts[0]) > len(parts[1]) > 0
        assert [*parts[0], *parts[1]] == [name_of(number) for number in numbers]
        assert {**parts[0], **parts[1]} == {name_of(n): payloads_of(n) for n in numbers}
        call.cancel()


async def test_another_checksum_publishes_nothing(tmp_path):
    async with peer_of_store(tmp_path) as peer:
        call = peer.server.stub.Put()
        wanted = await peer.announce(call, 1, 2)
        checksums = peer.write(wanted)
        offset = struct.unpack_from("<Q", wanted.offsets, 24)[0]
        peer.memory[offset + 999] ^= 1
        await call.write(to_publish(checksums))
        code, message = await refused(call)
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert "another checksum" in message
        assert (await peer.server.get(SHAPE, 1, 2))[1] == [1, 2]
        assert peer.server.held_bytes == 0
        assert await peer.put(1, 2) == [name_of(1), name_of(2)]


@pytest.mark.parametrize("way", ["cancel", "stall"])
async def test_reservations_of_an_ended_stream_are_freed(tmp_path, way):
    async with peer_of_store(tmp_path, memory_bytes=5 * GRANULE_BYTES, stall_seconds=0.2) as peer:
        call = peer.server.stub.Put()
        wanted = await peer.announce(call, 1, 2, 3)
        assert names_in(wanted.names) == [name_of(1), name_of(2)]
        assert peer.server.held_bytes > 0
        if way == "cancel":
            call.cancel()
        else:
            assert (await refused(call))[0] is grpc.StatusCode.DEADLINE_EXCEEDED
        await until(lambda: peer.server.held_bytes == 0)
        assert await peer.put(4, 5) == [name_of(4), name_of(5)]
        # All of it: this block takes the whole memory.
        assert await peer.server.put(layout(5 * GRANULE_BYTES), 6) == [name_of(6)]


async def test_a_block_stays_in_place_until_its_reader_releases_it(tmp_path):
    async with peer_of_store(tmp_path, memory_bytes=4 * GRANULE_BYTES) as peer:
        await peer.server.put(SHAPE, 1, 2)
        call = peer.server.stub.Get()
        await call.write(opened(SHAPE, 1, 2, use_shared_memory=True))
        await call.write(granted(4))
        assert (await call.read()).HasField("source")
        both = (await call.read()).shared
        assert names_in(both.names) == [name_of(1), name_of(2)]
        second = kv_store_pb2.GetShared(
            names=both.names[16:], offsets=both.offsets[16:], checksums=both.checksums[8:]
        )
        assert await peer.server.put(SHAPE, 3) == []
        assert peer.read(both)[name_of(1)] == payloads_of(1)
        await call.write(released(1))
        async with asyncio.timeout(10):
            while await peer.server.put(SHAPE, 3) == []:
                pass
        assert peer.read(second) == {name_of(2): payloads_of(2)}
        call.cancel()
        await until(lambda: peer.server.num_streams == 0)
        assert await peer.server.put(SHAPE, 4) == [name_of(4)]


async def test_a_reader_that_releases_nothing_is_ended(tmp_path):
    async with peer_of_store(tmp_path, stall_seconds=0.1) as peer:
        await peer.put(1)
        call = peer.server.stub.Get()
        await call.write(opened(SHAPE, 1, use_shared_memory=True))
        await call.write(granted(2))
        code, message = await refused(call)
        assert code is grpc.StatusCode.DEADLINE_EXCEEDED
        assert "released no block" in message
        call = peer.server.stub.Get()
        await call.write(opened(SHAPE, 1, use_shared_memory=True))
        await call.write(granted(2))
        await call.write(released(9))
        assert "is not held" in (await refused(call))[1]


async def test_without_shared_memory_blocks_are_sent():
    async with store_server() as server:
        await server.put(SHAPE, 1)
        call = server.stub.Put()
        await call.write(announced(SHAPE, 2, use_shared_memory=True))
        wanted = await server.answer(call, "wanted")
        assert (wanted.names, wanted.offsets) == (name_of(2), b"")
        call.cancel()
        get = server.stub.Get(iter([opened(SHAPE, 1, use_shared_memory=True), granted(2)]))
        kinds = [(await get.read()).WhichOneof("message") for _ in range(3)]
        assert kinds == ["source", "chunk", "chunk"]


def test_arena_path_follows_the_setting(tmp_path):
    assert arena_path("off", 1) is None
    with pytest.raises(StartupError, match="is no folder"):
        arena_path(str(tmp_path / "none"), 1)
    path = arena_path(str(tmp_path), 1)
    assert path.parent == tmp_path
    assert arena_path(None, 1 << 60) is None
    with Arena(GRANULE_BYTES, path):
        assert arena_facts(path).num_bytes == GRANULE_BYTES
        # One that is in use stays.
        assert arena_path(str(tmp_path), 1) != path
        assert path.exists()


HOLD = """
import sys, time
from pathlib import Path
from pagewire_shared.kv.arena import Arena
arena = Arena(65536, Path(sys.argv[1]))
print("made", flush=True)
time.sleep(100)
"""


def test_the_arena_of_a_store_that_was_killed_is_removed(tmp_path):
    path = arena_path(str(tmp_path), 1)
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "made\n"
        arena_path(str(tmp_path), 1)
        assert path.exists()
        process.send_signal(signal.SIGKILL)
    assert path.exists()
    arena_path(str(tmp_path), 1)
    assert not path.exists()
