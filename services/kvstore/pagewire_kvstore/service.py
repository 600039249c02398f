"""The KvStoreService: hello, and a clear refusal of what needs storage. Holds no blocks.

The whole contract is in kv_store.proto, so peers can be built against it; a worker that is refused
recomputes, which is always possible.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, NoReturn

import grpc.aio

from pagewire_protos.kvstore.v1 import kv_store_pb2, kv_store_pb2_grpc
from pagewire_shared.convert import agree_protocol
from pagewire_shared.errors import PagewireError
from pagewire_shared.ids import mint_id

SERVICE_NAME = "pagewire.kvstore.v1.KvStoreService"

Context = grpc.aio.ServicerContext[Any, Any]


@dataclass
class UnimplementedError(PagewireError):
    """A call that this version of the store does not answer."""

    code: str = "unimplemented"
    status_name = "UNIMPLEMENTED"
    __str__ = PagewireError.__str__


def _refuse(call: str) -> NoReturn:
    raise UnimplementedError(
        f"{call}: this KV store keeps no blocks yet; recompute them (only Hello is answered)"
    )


class KvStoreService(kv_store_pb2_grpc.KvStoreServiceServicer):
    """Answers Hello; every other call ends with UNIMPLEMENTED."""

    def __init__(self) -> None:
        self.store_id = mint_id()

    async def Hello(
        self, request: kv_store_pb2.HelloRequest, context: Context
    ) -> kv_store_pb2.HelloResponse:
        """Accept a peer that speaks a common protocol version; raise PeerRefusedError otherwise."""
        protocol = agree_protocol(request.protocol)
        return kv_store_pb2.HelloResponse(protocol=protocol, store_id=self.store_id)

    async def Put(
        self, request_iterator: AsyncIterator[kv_store_pb2.PutRequest], context: Context
    ) -> AsyncIterator[kv_store_pb2.PutResponse]:
        """Refuse."""
        _refuse("Put")
        yield kv_store_pb2.PutResponse()

    async def Get(
        self, request_iterator: AsyncIterator[kv_store_pb2.GetRequest], context: Context
    ) -> AsyncIterator[kv_store_pb2.GetResponse]:
        """Refuse."""
        _refuse("Get")
        yield kv_store_pb2.GetResponse()

    async def Pin(
        self, request: kv_store_pb2.PinRequest, context: Context
    ) -> kv_store_pb2.PinResponse:
        """Refuse."""
        _refuse("Pin")

    async def Release(
        self, request: kv_store_pb2.ReleaseRequest, context: Context
    ) -> kv_store_pb2.ReleaseResponse:
        """Refuse."""
        _refuse("Release")

    async def Delete(
        self, request: kv_store_pb2.DeleteRequest, context: Context
    ) -> kv_store_pb2.DeleteResponse:
        """Refuse."""
        _refuse("Delete")

    async def Stats(
        self, request: kv_store_pb2.StatsRequest, context: Context
    ) -> kv_store_pb2.StatsResponse:
        """Refuse."""
        _refuse("Stats")

    async def WatchBlocks(
        self, request: kv_store_pb2.WatchBlocksRequest, context: Context
    ) -> AsyncIterator[kv_store_pb2.WatchBlocksResponse]:
        """Refuse."""
        _refuse("WatchBlocks")
        yield kv_store_pb2.WatchBlocksResponse()
