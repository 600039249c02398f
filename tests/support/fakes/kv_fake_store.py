"""A KV store of a few lines for tests of the worker: real gRPC, and faults by name."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import grpc.aio

from pagewire_protos.common.v1 import layout_pb2
from pagewire_protos.kvstore.v1 import kv_store_pb2 as wire
from pagewire_protos.kvstore.v1 import kv_store_pb2_grpc
from pagewire_shared import PROTOCOL_MAX
from pagewire_shared.identity.ids import BlockName, mint_id
from pagewire_shared.kv.arrays import pack_names, unpack_names, unpack_u32
from pagewire_shared.kv.checksum import crc32c
from pagewire_shared.kv.chunk_convert import MAX_DATA_BYTES, KvPiece, checksum_of, decode_chunk
from pagewire_shared.rpc.options import server_options


@dataclass
class FakeStore(kv_store_pb2_grpc.KvStoreServiceServicer):
    """Holds what is published, and counts.

    `fault` is the name of what goes wrong: "stop" (no answers), "refuse_layout", "never_publish",
    "unknown_wanted", "unknown_published", "no_credit", "no_more_credit",
    "flip" (a bit, checksum as before), "swap" (another payload, checksums that fit it and not the
    block), "order", "long", "foreign", "cut",
    "no_payload_checksum", "no_tier", "end" (streams end at once), "wants_nothing", "missing_all",
    "declines" (what is lacking), "declines_wanted",
    "linger" (loads have no end).
    """

    fault: str = ""
    store_id: bytes = field(default_factory=mint_id)
    tier: str = "memory"
    blocks: dict[bytes, bytes] = field(default_factory=dict)
    checksums: dict[bytes, int] = field(default_factory=dict)
    tenants: dict[bytes, str | None] = field(default_factory=dict)
    layouts: list[layout_pb2.KvLayout] = field(default_factory=list)
    window: int = 4
    sent_chunks: int = 0
    sent_shared: int = 0
    most_names: int = 0
    num_puts: int = 0
    num_gets: int = 0
    num_hellos: int = 0
    got_chunks: int = 0
    ended_gets: int = 0
    arena: Path | None = None
    boot_id: str = field(default_factory=Path("/proc/sys/kernel/random/boot_id").read_text)
    inode_error: int = 0
    offset_error: int = 0
    reserved: dict[bytes, tuple[int, int]] = field(default_factory=dict)
    hold: asyncio.Event = field(default_factory=asyncio.Event)
    """With fault "hold", nothing is sent before this is set."""

    async def Hello(
        self, request: wire.HelloRequest, context: grpc.aio.ServicerContext
    ) -> wire.HelloResponse:
        """Accept."""
        self.num_hellos += 1
        await self._stop_if("stop")
        if self.fault == "refuse_layout":
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "another layout")
        self.layouts.append(request.layout)
        answer = wire.HelloResponse(protocol=PROTOCOL_MAX, store_id=self.store_id)
        if self.arena is not None:
            facts = self.arena.stat()
            answer.shared_memory.CopyFrom(
                wire.SharedMemory(
                    path=str(self.arena),
                    boot_id=self.boot_id,
                    device=facts.st_dev,
                    inode=facts.st_ino + self.inode_error,
                    num_bytes=facts.st_size,
                )
            )
        return answer

    async def _stop_if(self, fault: str) -> None:
        if self.fault == fault:
            await asyncio.Event().wait()

    async def Put(
        self, request_iterator: AsyncIterator[wire.PutRequest], context: grpc.aio.ServicerContext
    ) -> AsyncIterator[wire.PutResponse]:
        """Take what is lacking."""
        self.num_puts += 1
        if self.fault == "end":
            return
        if self.fault != "no_credit":
            yield wire.PutResponse(credit=wire.PutCredit(num_chunks=self.window))
        partial: dict[bytes, bytearray] = {}
        checksums: dict[bytes, int] = {}
        tenant: str | None = None
        async for request in request_iterator:
            await self._stop_if("stop")
            kind = request.WhichOneof("message")
            if kind == "announce":
                tenant = request.announce.tenant if request.announce.HasField("tenant") else None
                yield self._wanted(request.announce)
            elif kind == "chunk":
                self.got_chunks += 1
                piece = decode_chunk(request.chunk)
                assert piece.data_checksum is not None
                data = partial.setdefault(piece.name, bytearray())
                assert piece.offset == len(data)
                data += piece.data
                if piece.is_last:
                    assert piece.payload_checksum == crc32c(bytes(data))
                    checksums[piece.name] = piece.payload_checksum
                if self.fault != "no_more_credit":
                    yield wire.PutResponse(credit=wire.PutCredit(num_chunks=1))
            else:
                names = unpack_names(request.publish.names)
                await self._stop_if("never_publish")
                sums = unpack_u32(request.publish.checksums)
                for name, checksum in zip(names, sums, strict=False):
                    assert checksum == crc32c(self.shared(name))
                    partial[name], checksums[name] = bytearray(self.shared(name)), checksum
                for name in names:
                    self.blocks[name] = bytes(partial.pop(name))
                    self.checksums[name] = checksums[name]
                    self.tenants[name] = tenant
                extra = [bytes(16)] if self.fault == "unknown_published" else []
                published = wire.PutPublished(names=pack_names(names + extra))
                yield wire.PutResponse(published=published)

    def _wanted(self, announce: wire.PutAnnounce) -> wire.PutResponse:
        names = unpack_names(announce.names)
        wanted = [name for name in names if name not in self.blocks]
        if self.fault == "unknown_wanted":
            wanted = [bytes(16)]
        if self.fault == "wants_nothing":
            wanted = []
        declined = wanted if self.fault in ("declines", "declines_wanted") else []
        if self.fault == "declines":
            wanted = []
        offsets = b""
        if self.arena is not None and announce.use_shared_memory:
            size = announce.layout.groups[0].bytes_per_block
            for name in wanted:
                self.reserved[name] = (len(self.reserved) * size + self.offset_error, size)
            offsets = b"".join(self.reserved[n][0].to_bytes(8, "little") for n in wanted)
        answer = wire.PutWanted(
            names=pack_names(wanted), offsets=offsets, declined=pack_names(declined)
        )
        return wire.PutResponse(wanted=answer)

    def shared(self, name: bytes) -> bytes:
        """What lies in the arena where a block was to be written."""
        assert self.arena is not None
        offset, size = self.reserved[name]
        return self.arena.read_bytes()[offset : offset + size]

    async def Get(
        self, request_iterator: AsyncIterator[wire.GetRequest], context: grpc.aio.ServicerContext
    ) -> AsyncIterator[wire.GetResponse]:
        """Send what is there, as credits allow."""
        self.num_gets += 1
        try:
            opened = (await anext(request_iterator)).open
            names = unpack_names(opened.names)
            num_credits = 0
            self.most_names = max(self.most_names, len(names))
            await self._stop_if("stop")
            if self.fault == "hold":
                await self.hold.wait()
            if self.fault == "end":
                return
            if self.fault != "no_tier":
                yield wire.GetResponse(source=wire.GetSource(tier=self.tier))
            for name in names:
                if name not in self.blocks or self.fault == "missing_all":
                    yield wire.GetResponse(missing=wire.GetMissing(names=name))
                    continue
                if opened.use_shared_memory and name in self.reserved:
                    offset = self.reserved[name][0].to_bytes(8, "little")
                    checksum = self.checksums[name].to_bytes(4, "little")
                    shared = wire.GetShared(names=name, offsets=offset, checksums=checksum)
                    self.sent_shared += 1
                    yield wire.GetResponse(shared=shared)
                    continue
                for piece in self._pieces(name):
                    while num_credits == 0:
                        num_credits += (await anext(request_iterator)).credit.num_chunks
                    num_credits -= 1
                    self.sent_chunks += 1
                    yield _response(piece)
            # A real one ends here, before the client has read what is on its way.
            await self._stop_if("linger")
        finally:
            self.ended_gets += 1

    def _pieces(self, name: bytes) -> list[KvPiece]:
        data = self.blocks[name]
        if self.fault == "long":
            data += b"x"
        if self.fault == "swap":
            data = bytes(byte ^ 1 for byte in data)
        if self.fault == "cut":
            data = data[:-4]
        if self.fault == "foreign":
            name = bytes(16)
        pieces = []
        for offset in range(0, len(data), MAX_DATA_BYTES):
            part = data[offset : offset + MAX_DATA_BYTES]
            is_last = offset + len(part) == len(data)
            total = self.checksums.get(name, 0) if self.fault != "no_payload_checksum" else None
            piece = KvPiece(
                name=BlockName(name),
                group=0,
                offset=offset if self.fault != "order" else offset + 1,
                is_last=is_last,
                data=part,
                payload_checksum=total if is_last else None,
            )
            checksum = checksum_of(piece)
            if self.fault == "flip":
                part = bytes([part[0] ^ 1]) + part[1:]
            pieces.append(
                KvPiece(
                    **{
                        **{f: getattr(piece, f) for f in ("name", "group", "offset", "is_last")},
                        "payload_checksum": piece.payload_checksum,
                        "data": part,
                        "checksum": checksum,
                    }
                )
            )
        return pieces


def _response(piece: KvPiece) -> wire.GetResponse:
    chunk = layout_pb2.KvChunk(
        name=piece.name,
        group=piece.group,
        offset=piece.offset,
        is_last=piece.is_last,
        data=bytes(piece.data),
        checksum=piece.checksum,
        payload_checksum=piece.payload_checksum,
    )
    return wire.GetResponse(chunk=chunk)


def _is_there(address: str) -> bool:
    return Path(address.removeprefix("unix:")).exists()


@asynccontextmanager
async def storing(store: FakeStore, address: str) -> AsyncIterator[None]:
    """Serve `store` on `address`."""
    server = grpc.aio.server(options=server_options())
    kv_store_pb2_grpc.add_KvStoreServiceServicer_to_server(store, server)
    server.add_insecure_port(address)
    await server.start()
    try:
        yield
    finally:
        await server.stop(None)
        # gRPC removes the file a little later, and would remove that of the next server.
        for _ in range(200):
            if not _is_there(address):
                break
            await asyncio.sleep(0.01)
