"""A scripted KV store over a real socket: it says what it has, and nothing else. As a program it
serves a listing until it is killed."""

import asyncio
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio

from pagewire_protos.kvstore.v1 import kv_store_pb2 as ks
from pagewire_shared.identity.ids import BlockName, mint_id
from pagewire_shared.kv.arrays import pack_names
from pagewire_shared.rpc.options import server_options


def names(*numbers: int) -> list[BlockName]:
    return [BlockName(number.to_bytes(16, "little")) for number in numbers]


def stored(sequence: int, *numbers: int) -> ks.WatchBlocksResponse:
    packed = pack_names(names(*numbers))
    return ks.WatchBlocksResponse(sequence=sequence, stored=ks.BlocksStored(names=packed))


def removed(sequence: int, *numbers: int) -> ks.WatchBlocksResponse:
    packed = pack_names(names(*numbers))
    return ks.WatchBlocksResponse(sequence=sequence, removed=ks.BlocksRemoved(names=packed))


def cleared(sequence: int) -> ks.WatchBlocksResponse:
    return ks.WatchBlocksResponse(sequence=sequence, cleared=ks.BlocksCleared())


@dataclass
class ScriptedKvStore:
    """Answers every watch with the next script, and with nothing when there is none; `say` adds
    to the newest watch. Bytes are sent as they are."""

    address: str
    store_id: bytes = field(default_factory=mint_id)
    scripts: list[list[ks.WatchBlocksResponse | bytes]] = field(default_factory=list)
    requests: list[ks.WatchBlocksRequest] = field(default_factory=list)
    _queue: "asyncio.Queue[ks.WatchBlocksResponse | bytes | None]" = field(
        default_factory=asyncio.Queue
    )

    def say(self, *messages: ks.WatchBlocksResponse | bytes) -> None:
        for message in messages:
            self._queue.put_nowait(message)

    def hang_up(self) -> None:
        """End the newest watch."""
        self._queue.put_nowait(None)

    @asynccontextmanager
    async def running(self) -> AsyncIterator["ScriptedKvStore"]:
        server = grpc.aio.server(options=server_options())
        handlers: dict[str, Any] = {
            "Hello": grpc.unary_unary_rpc_method_handler(
                self._hello, ks.HelloRequest.FromString, ks.HelloResponse.SerializeToString
            ),
            "WatchBlocks": grpc.unary_stream_rpc_method_handler(
                self._watch, ks.WatchBlocksRequest.FromString, _encoded
            ),
        }
        service = "pagewire.kvstore.v1.KvStoreService"
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
        port = server.add_insecure_port(self.address)
        if self.address.endswith(":0"):
            self.address = f"{self.address.removesuffix('0')}{port}"
        await server.start()
        try:
            yield self
        finally:
            await server.stop(0)

    async def _hello(self, request: ks.HelloRequest, context: Any) -> ks.HelloResponse:
        assert not request.HasField("layout"), "a scheduler has no blocks"
        return ks.HelloResponse(protocol=1, store_id=self.store_id)

    async def _watch(
        self, request: ks.WatchBlocksRequest, context: Any
    ) -> AsyncIterator[ks.WatchBlocksResponse | bytes]:
        self.requests.append(request)
        queue = self._queue = asyncio.Queue()
        for message in self.scripts.pop(0) if self.scripts else ():
            yield message
        while (message := await queue.get()) is not None:
            yield message


def _encoded(message: ks.WatchBlocksResponse | bytes) -> bytes:
    return message if isinstance(message, bytes) else message.SerializeToString()


async def _serve(address: str, numbers: Iterable[int]) -> None:
    store = ScriptedKvStore(address, scripts=[[stored(1, *numbers)]])
    async with store.running():
        print("ready", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1], range(8)))
